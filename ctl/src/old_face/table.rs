//! Every command that the old script had: its arguments, what it asks for, what it says and what it stores.

use omgservers_protocol::support::{ProjectPermission, StagePermission, TenantPermission};

use self::Does::{Ask, CreateToken, PrintCurrent, UseCredentials};
use self::Outcome::{Bare, Created, Deleted, Details, NewDeveloper, Permissions, Pinged, Said};
use crate::context::Role::{self, Admin, Developer, Support};

/// A command of a group.
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) arguments: &'static [Argument],
    pub(super) does: Does,
}

pub(super) struct Argument {
    /// As the usage shows it, and in words as `Using` lines say it.
    pub(super) shown: &'static str,
    /// As `Using` lines and results name it.
    pub(super) variable: &'static str,
    /// In the request.
    pub(super) field: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// One word, sent as a list.
    Word,
    /// The path of a JSON document, which is sent instead.
    Document,
}

pub(super) enum Does {
    Reset,
    PrintVariables,
    PrintVariable,
    UseEnvironment,
    UsePublic,
    UseLocal,
    UseCredentials(Role),
    PrintCurrent(Role),
    CreateToken(Role),
    Ask(Question),
    Upload,
}

/// One request.
pub(super) struct Question {
    pub(super) role: Role,
    pub(super) operation: &'static str,
    /// Arguments that a `Using` line tells.
    pub(super) using: Using,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Using {
    All,
    /// All but the project.
    NoProject,
    Nothing,
}

pub(super) enum Outcome {
    /// Stores fields of the reply and tells them.
    Created(&'static str, &'static [Produced]),
    Said(&'static str),
    /// Without date and environment, and asked even without a token.
    Bare(&'static str),
    /// Whether there was something to delete, and the arguments that say what.
    Deleted(&'static str, &'static [&'static str]),
    /// A list of the reply, and how it is called.
    Permissions(&'static str, &'static str, &'static str),
    /// The reply itself.
    Details,
    Pinged,
    /// Logs in as that developer, too.
    NewDeveloper,
}

pub(super) struct Produced {
    pub(super) variable: &'static str,
    pub(super) field: &'static str,
}

const fn argument(shown: &'static str, variable: &'static str, field: &'static str) -> Argument {
    Argument {
        shown,
        variable,
        field,
        kind: Kind::Text,
    }
}

const fn produced(variable: &'static str, field: &'static str) -> Produced {
    Produced { variable, field }
}

const TENANT: Argument = argument("tenant", "TENANT", "tenant");
const TENANT_ID: Argument = argument("tenant_id", "TENANT_ID", "tenant_id");
const PROJECT: Argument = argument("project", "PROJECT", "project");
const PROJECT_ID: Argument = argument("project_id", "PROJECT_ID", "project_id");
const STAGE: Argument = argument("stage", "STAGE", "stage");
const STAGE_ID: Argument = argument("stage_id", "STAGE_ID", "stage_id");
const VERSION: Argument = argument("version", "VERSION", "version_id");
/// Deletions call the id of what they delete so.
const VERSION_TO_DELETE: Argument = argument("version", "VERSION", "id");
const DEPLOYMENT: Argument = argument("deployment", "DEPLOYMENT", "deployment_id");
const DEPLOYMENT_TO_DELETE: Argument = argument("deployment", "DEPLOYMENT", "id");
const LOBBY: Argument = argument("lobby", "LOBBY_ID", "lobby_id");
const MATCHMAKER: Argument = argument("matchmaker", "MATCHMAKER_ID", "matchmaker_id");
const ALIAS: Argument = argument("alias", "ALIAS", "alias");
const USER: Argument = argument("user", "USER", "user_id");
const PASSWORD: Argument = argument("password", "PASSWORD", "password");
const FILES: Argument = argument("files_directory_path", "FILES_DIRECTORY_PATH", "");
const CONFIG: Argument = Argument {
    kind: Kind::Document,
    ..argument("config_path", "CONFIG_PATH", "config")
};
const GRANTED: Argument = Argument {
    kind: Kind::Word,
    ..argument("permission", "PERMISSION", "permissions_to_create")
};
const REVOKED: Argument = Argument {
    kind: Kind::Word,
    ..argument("permission", "PERMISSION", "permissions_to_delete")
};

const NEW_PROJECT: Outcome = Created(
    "Project was created",
    &[produced("PROJECT", "project_id"), produced("STAGE", "stage_id")],
);

const fn row(group: &'static str, name: &'static str, arguments: &'static [Argument], does: Does) -> Row {
    Row {
        group,
        name,
        arguments,
        does,
    }
}

const fn environment(name: &'static str, arguments: &'static [Argument], does: Does) -> Row {
    row("environment", name, arguments, does)
}

const fn ask(
    role: Role,
    name: &'static str,
    arguments: &'static [Argument],
    operation: &'static str,
    using: Using,
    outcome: Outcome,
) -> Row {
    let does = Ask(Question {
        role,
        operation,
        using,
        outcome,
    });
    row(role.name(), name, arguments, does)
}

use self::Using::{All, NoProject, Nothing};

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    environment("reset", &[], Does::Reset),
    environment("printCurrent", &[], Does::PrintVariables),
    environment("printVariable", &[argument("variable", "VARIABLE_NAME", "")], Does::PrintVariable),
    environment("useEnvironment", &[argument("name", "NAME", ""), argument("service_url", "SERVICE_URL", "")], Does::UseEnvironment),
    environment("usePublic", &[], Does::UsePublic),
    environment("useLocal", &[], Does::UseLocal),

    row("admin", "useCredentials", &[USER, PASSWORD], UseCredentials(Admin)),
    row("admin", "printCurrent", &[], PrintCurrent(Admin)),
    row("admin", "createToken", &[], CreateToken(Admin)),
    ask(Admin, "calculateShard", &[argument("shard_key", "SHARD_KEY", "shard_key")], "calculate-shard", Nothing,
        Created("Shard was calculated", &[produced("SHARD_INDEX", "shard_index"), produced("SERVER_URI", "server_uri")])),
    ask(Admin, "generateId", &[], "generate-id", Nothing, Created("Id was generated", &[produced("GENERATED_ID", "id")])),
    ask(Admin, "bcryptHash", &[argument("value", "VALUE", "value")], "bcrypt-hash", Nothing,
        Created("Value was bcrypted", &[produced("BCRYPTED_HASH", "hash")])),
    ask(Admin, "pingDockerHost", &[argument("docker_daemon_uri", "DOCKER_DAEMON_URI", "docker_daemon_uri")], "ping-docker-host", Nothing, Pinged),

    row("support", "useCredentials", &[USER, PASSWORD], UseCredentials(Support)),
    row("support", "printCurrent", &[], PrintCurrent(Support)),
    row("support", "createToken", &[], CreateToken(Support)),
    ask(Support, "createTenant", &[], "create-tenant", Nothing, Created("Tenant was created", &[produced("TENANT", "id")])),
    ask(Support, "createTenantAlias", &[TENANT_ID, ALIAS], "create-tenant-alias", All, Said("Tenant alias was created")),
    ask(Support, "deleteTenant", &[TENANT], "delete-tenant", Nothing, Deleted("Tenant", &["TENANT"])),
    ask(Support, "createProject", &[TENANT], "create-project", Nothing, NEW_PROJECT),
    ask(Support, "createProjectAlias", &[TENANT, PROJECT_ID, ALIAS], "create-project-alias", All, Said("Project alias was created")),
    ask(Support, "deleteProject", &[TENANT, PROJECT], "delete-project", Nothing, Deleted("Project", &["TENANT", "PROJECT"])),
    ask(Support, "createDeveloper", &[], "create-developer", Nothing, NewDeveloper),
    ask(Support, "createTenantPermission", &[TENANT, USER, GRANTED], "create-tenant-permissions", All,
        Permissions("Created permissions", "CREATED_PERMISSION", "created_permissions")),
    ask(Support, "deleteTenantPermission", &[TENANT, USER, REVOKED], "delete-tenant-permissions", All,
        Permissions("Deleted permissions", "DELETED_PERMISSION", "deleted_permissions")),
    ask(Support, "createProjectPermission", &[TENANT, PROJECT, USER, GRANTED], "create-project-permissions", All,
        Permissions("Created tenant project permissions", "CREATED_PERMISSION", "created_permissions")),
    ask(Support, "deleteProjectPermission", &[TENANT, PROJECT, USER, REVOKED], "delete-project-permissions", All,
        Permissions("Deleted tenant project permissions", "DELETED_PERMISSION", "deleted_permissions")),
    ask(Support, "createStagePermission", &[TENANT, PROJECT, STAGE, USER, GRANTED], "create-stage-permissions", All,
        Permissions("Created tenant stage permissions", "CREATED_PERMISSION", "created_permissions")),
    ask(Support, "deleteStagePermission", &[TENANT, PROJECT, STAGE, USER, REVOKED], "delete-stage-permissions", All,
        Permissions("Deleted tenant stage permissions", "DELETED_PERMISSION", "deleted_permissions")),

    row("developer", "useCredentials", &[USER, PASSWORD], UseCredentials(Developer)),
    row("developer", "printCurrent", &[], PrintCurrent(Developer)),
    row("developer", "createToken", &[], CreateToken(Developer)),
    ask(Developer, "getTenantDetails", &[TENANT], "get-tenant-details", All, Details),
    ask(Developer, "createProject", &[TENANT], "create-project", All, NEW_PROJECT),
    ask(Developer, "createProjectAlias", &[TENANT, PROJECT_ID, ALIAS], "create-project-alias", All, Said("Project alias was created")),
    ask(Developer, "getProjectDetails", &[TENANT, PROJECT], "get-project-details", All, Details),
    ask(Developer, "deleteProject", &[TENANT, PROJECT], "delete-project", All, Deleted("Project", &["TENANT", "PROJECT"])),
    ask(Developer, "createStage", &[TENANT, PROJECT], "create-stage", All, Created("Stage was created", &[produced("STAGE", "stage_id")])),
    ask(Developer, "createStageAlias", &[TENANT, STAGE_ID, ALIAS], "create-stage-alias", All, Said("Stage alias was created")),
    ask(Developer, "getStageDetails", &[TENANT, PROJECT, STAGE], "get-stage-details", NoProject, Details),
    ask(Developer, "deleteStage", &[TENANT, PROJECT, STAGE], "delete-stage", NoProject, Deleted("Stage", &["TENANT", "STAGE"])),
    ask(Developer, "createVersion", &[TENANT, PROJECT, CONFIG], "create-version", All,
        Created("Version was created", &[produced("VERSION", "version_id")])),
    row("developer", "uploadFilesArchive", &[TENANT, VERSION, FILES], Does::Upload),
    ask(Developer, "getVersionDetails", &[TENANT, VERSION], "get-version-details", All, Details),
    ask(Developer, "deleteVersion", &[TENANT, VERSION_TO_DELETE], "delete-version", All, Deleted("Version", &["TENANT", "VERSION"])),
    ask(Developer, "deployVersion", &[TENANT, PROJECT, STAGE, VERSION], "deploy-version", All,
        Created("Deployment was created", &[produced("DEPLOYMENT", "deployment_id")])),
    ask(Developer, "getDeploymentDetails", &[TENANT, DEPLOYMENT], "get-deployment-details", All, Details),
    ask(Developer, "deleteDeployment", &[TENANT, DEPLOYMENT_TO_DELETE], "delete-deployment", All,
        Deleted("Deployment", &["TENANT", "DEPLOYMENT"])),
    ask(Developer, "createLobbyRequest", &[TENANT, DEPLOYMENT], "create-lobby-request", Nothing, Bare("Lobby request created successfully.")),
    ask(Developer, "deleteLobby", &[LOBBY], "delete-lobby", All, Deleted("Lobby", &["LOBBY_ID"])),
    ask(Developer, "createMatchmakerRequest", &[TENANT, DEPLOYMENT], "create-matchmaker-request", Nothing,
        Bare("Matchmaker request created successfully.")),
    ask(Developer, "deleteMatchmaker", &[MATCHMAKER], "delete-matchmaker", All, Deleted("Matchmaker", &["MATCHMAKER_ID"])),
];

impl Row {
    /// `group name`
    pub(super) fn path(&self) -> String {
        format!("{} {}", self.group, self.name)
    }

    /// What stands below the usage of this command: a heading and words.
    pub(super) fn notes(&self) -> Option<(&'static str, Vec<String>)> {
        let produces = |words: &[&str]| Some(("produces", words.iter().map(|word| (*word).to_owned()).collect()));
        let of_role = |role: &Role, suffixes: &[&str]| {
            let words = suffixes.iter().map(|suffix| role.variable(suffix)).collect();
            Some(("produces", words))
        };
        match &self.does {
            Does::UseEnvironment | Does::UsePublic | Does::UseLocal => produces(&["ENVIRONMENT_NAME", "SERVICE_URL"]),
            UseCredentials(role) => of_role(role, &["USER", "PASSWORD", "TOKEN"]),
            CreateToken(role) => of_role(role, &["TOKEN"]),
            Does::Upload => produces(&["FILES_ARCHIVE"]),
            Ask(question) => match &question.outcome {
                Created(_, variables) => {
                    let variables: Vec<_> = variables.iter().map(|produced| produced.variable).collect();
                    produces(&variables)
                }
                Deleted(..) => produces(&["DELETED"]),
                Pinged => produces(&["SUCCESSFUL"]),
                NewDeveloper => of_role(&Developer, &["USER", "PASSWORD", "TOKEN"]),
                Permissions(..) => Some(("permission", self.permissions())),
                Said(_) | Bare(_) | Details => None,
            },
            Does::Reset | Does::PrintVariables | Does::PrintVariable | PrintCurrent(_) => None,
        }
    }

    /// What may be granted on the level that the command names.
    fn permissions(&self) -> Vec<String> {
        let words: Vec<&str> = if self.name.contains("Tenant") {
            TenantPermission::ALL.iter().map(|word| word.as_str()).collect()
        } else if self.name.contains("Project") {
            ProjectPermission::ALL.iter().map(|word| word.as_str()).collect()
        } else {
            StagePermission::ALL.iter().map(|word| word.as_str()).collect()
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_snapshot() {
        let said = crate::snapshots("omgserversctl");
        let is_missing = |path: &String| {
            !said
                .iter()
                .any(|line| line == path || line.starts_with(&format!("{path} ")))
        };
        let paths = ROWS.iter().map(Row::path).chain(["help".to_owned(), "logs".to_owned()]);
        let missing: Vec<_> = paths.filter(is_missing).collect();
        assert!(missing.is_empty(), "no snapshot shows {missing:#?}");
    }

    #[test]
    fn every_request_goes_where_the_service_listens() {
        // The new commands are typed, so what both faces can do is asked for by the same name.
        for row in ROWS {
            if let Ask(question) = &row.does {
                assert_eq!(row.group, question.role.name());
                assert!(question.operation.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
            }
        }
        assert_eq!(ROWS.len(), 52);
    }
}
