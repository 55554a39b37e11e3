//! Details of entities as tables.

use omgservers_protocol::developer::{
    Alias, Deployment, DeploymentDetails, ProjectDetails, StageDetails, TenantDetails, VersionDetails,
};

use crate::table::table;

pub(super) fn tenant(details: &TenantDetails) -> String {
    let tenant = &details.tenant;
    let projects = details
        .projects
        .iter()
        .map(|project| [project.id.to_string(), names(&project.aliases), project.created.clone()]);
    let permissions = details
        .permissions
        .iter()
        .map(|row| [row.user_id.to_string(), row.permission.clone(), row.created.clone()]);
    [
        title("Tenant", tenant.id, &tenant.aliases, &tenant.created),
        table("Projects", ["ID", "ALIASES", "CREATED"], projects.collect()),
        table(
            "Permissions",
            ["DEVELOPER", "PERMISSION", "CREATED"],
            permissions.collect(),
        ),
    ]
    .join("\n\n")
}

pub(super) fn project(details: &ProjectDetails) -> String {
    let project = &details.project;
    let stages = details
        .stages
        .iter()
        .map(|stage| [stage.id.to_string(), names(&stage.aliases), stage.created.clone()]);
    let versions = details
        .versions
        .iter()
        .map(|version| [version.id.to_string(), version.created.clone()]);
    let permissions = details
        .permissions
        .iter()
        .map(|row| [row.user_id.to_string(), row.permission.clone(), row.created.clone()]);
    [
        title("Project", project.id, &project.aliases, &project.created),
        table("Stages", ["ID", "ALIASES", "CREATED"], stages.collect()),
        table("Versions", ["ID", "CREATED"], versions.collect()),
        table(
            "Permissions",
            ["DEVELOPER", "PERMISSION", "CREATED"],
            permissions.collect(),
        ),
    ]
    .join("\n\n")
}

pub(super) fn stage(details: &StageDetails) -> String {
    let stage = &details.stage;
    let deployments = details
        .deployments
        .iter()
        .map(|row: &Deployment| [row.id.to_string(), row.version_id.to_string(), row.created.clone()]);
    let permissions = details
        .permissions
        .iter()
        .map(|row| [row.user_id.to_string(), row.permission.clone(), row.created.clone()]);
    [
        title("Stage", stage.id, &stage.aliases, &stage.created),
        table("Deployments", ["ID", "VERSION", "CREATED"], deployments.collect()),
        table(
            "Permissions",
            ["DEVELOPER", "PERMISSION", "CREATED"],
            permissions.collect(),
        ),
    ]
    .join("\n\n")
}

pub(super) fn version(details: &VersionDetails) -> String {
    let version = &details.version;
    let images = details
        .images
        .iter()
        .map(|image| [image.qualifier.clone(), image.image_id.clone(), image.created.clone()]);
    [
        title("Version", version.id, &[], &version.created),
        table("Images", ["FOR", "IMAGE", "CREATED"], images.collect()),
    ]
    .join("\n\n")
}

pub(super) fn deployment(details: &DeploymentDetails) -> String {
    let deployment = &details.deployment;
    let venues = details.venues.iter().map(|venue| {
        [
            venue.id.to_string(),
            venue.qualifier.clone(),
            venue.mode.clone().unwrap_or_default(),
            venue.state.clone(),
            venue.players.to_string(),
            venue.created.clone(),
            venue.reason.clone().unwrap_or_default(),
        ]
    });
    let titles = ["ID", "KIND", "MODE", "STATE", "PLAYERS", "CREATED", "REASON"];
    let of_version = format!("of version {} on stage {}", deployment.version_id, deployment.stage_id);
    [
        format!(
            "Deployment {} {of_version}, created {}",
            deployment.id, deployment.created
        ),
        table("Lobbies and matches", titles, venues.collect()),
    ]
    .join("\n\n")
}

fn title(kind: &str, id: impl std::fmt::Display, aliases: &[Alias], created: &str) -> String {
    match names(aliases).as_str() {
        "" => format!("{kind} {id}, created {created}"),
        names => format!("{kind} {id} ({names}), created {created}"),
    }
}

fn names(aliases: &[Alias]) -> String {
    let names: Vec<_> = aliases.iter().map(|alias| alias.value.as_str()).collect();
    names.join(", ")
}
