//! The whole control plane, command by command.

use crate::commands::{run, setting};
use crate::replies;

#[test]
fn an_admin_looks_after_the_installation() {
    let mut setting = setting();
    let transcript = &mut setting.transcript;
    transcript.run_all(
        "
        admin useCredentials admin admin
        admin printCurrent
        admin createToken
        admin renewToken
        admin calculateShard 100
        admin generateId
        admin bcryptHash secret
        admin pingDockerHost unix:///var/run/docker.sock
        admin ping-docker-host tcp://nobody:2375
        admin resetPassword alice
        admin listShards
        admin listInstances
        admin listHosts
        admin listFailedJobs
        admin listUsers --role developer
        admin listAuditRecords
        admin changePassword admin another
        environment printCurrent
        ",
    );
    transcript.run_with_input("admin changePassword - -", "another\nadmin\n");
    transcript.run_with_input("admin bcryptHash - --output json", "secret\n");
    transcript.check("admin");
}

#[test]
fn support_looks_after_tenants_and_developers() {
    let mut setting = setting();
    let transcript = &mut setting.transcript;
    transcript.run_all(
        "
        support useCredentials support support
        support printCurrent
        support createToken
        support renewToken
        support changePassword support support
        support createTenant
        support createTenantAlias 100 acme
        support listTenants
        support setTenantQuotas acme --runtimes 10 --memory 4096
        support setTenantQuotas acme
        support setTenantQuotas acme --unlimited
        support getTenantQuotas acme
        support listUsage acme
        support createProject acme
        support createProjectAlias acme 200 game
        support listProjects acme
        support createStage acme game
        support createStageAlias acme 301 prod
        support listStages acme game
        support createDeveloper
        support createDeveloperAlias 700 alice
        developer useCredentials alice developer-password
        support createDeveloper
        support resetDeveloperPassword 700
        support listDevelopers
        support createTenantPermission acme 700 PROJECT_MANAGER TENANT_VIEWER
        support createTenantPermission acme 701 PROJECT_MANAGER
        support deleteTenantPermission acme 700 TENANT_VIEWER
        support createProjectPermission acme game 700 version-manager
        support deleteProjectPermission acme game 700 VERSION_MANAGER
        support createStagePermission acme game prod 700 DEPLOYMENT_MANAGER
        support deleteStagePermission acme game prod 700 DEPLOYMENT_MANAGER
        support listPermissions acme
        support listPermissions acme game
        support listPermissions acme game prod
        support deleteStage acme game prod
        support deleteProject acme game
        support createTenantPermission acme alice TENANT_VIEWER
        support deleteStagePermission acme game prod alice DEPLOYMENT_MANAGER
        support createDeveloperAlias alice al
        support resetDeveloperPassword alice
        support deleteDeveloper bob
        support deleteDeveloper alice
        support deleteDeveloper 700
        support deleteTenant acme
        ",
    );
    transcript.check("support");
}

#[test]
fn a_developer_looks_after_games() {
    let mut setting = setting();
    let folder = setting.folder.path().to_owned();
    run(&folder, "developer useCredentials 700 developer-password");
    std::fs::create_dir(folder.join("files")).unwrap();
    std::fs::write(folder.join("files/main.lua"), "print('hello')").unwrap();
    std::fs::write(folder.join("version.json"), r#"{"modes": []}"#).unwrap();
    let transcript = &mut setting.transcript;
    transcript.run_all(
        "
        developer printCurrent
        developer createToken
        developer renewToken
        developer changePassword developer-password developer-password
        developer listTenants
        developer getTenantQuotas 100
        developer listUsage 100
        developer listAuditRecords 100
        developer listPermissions 100
        developer createProject 100
        developer listProjects 100
        developer createStage 100 200
        developer listStages 100 200
        developer setStageMaintenance 100 200 300 Back-at-noon.
        developer getStageDetails 100 200 300
        developer clearStageMaintenance 100 200 300
        developer setStageVariable 100 200 300 MOTD hello
        developer setStageVariable 100 200 300 OLD hello
        developer listStageVariables 100 200 300
        developer deleteStageVariable 100 200 300 MOTD
        developer createVersion 100 200 --from version.json
        developer uploadFilesArchive 100 400 files
        developer listFilesArchives 100 400
        developer createImage 100 200 400 UNIVERSAL shooter:dev
        developer listImages 100 400
        developer getVersionConfig 100 400
        developer listVersions 100 200
        developer deployVersion 100 200 300 400 --from deployment.json
        developer deployVersion 100 200 300 400
        developer getDeploymentConfig 100 500
        developer listDeployments 100 200 300
        developer listDeployments 100 200 300 --history
        developer createLobbyRequest 100 500
        developer listLobbies 100 500
        developer deleteLobby 600
        developer createMatchmakerRequest 100 500
        developer listMatches 100 500
        developer listClients 100 500
        developer deleteMatchmaker 601
        developer createApiKey 100 ci --scope read,DEPLOY --project 200 --expires 2025-12-31T00:00:00Z
        developer listApiKeys
        developer deleteApiKey 900
        ",
    );
    transcript.run_with_input("developer setStageVariable 100 200 300 KEY - --secret", "two\nlines\n");
    transcript.run_with_input("developer createVersion 100 200 --from -", r#"{"modes": []}"#);
    transcript.check("developer");
    let log = run(&folder, "logs");
    for secret in ["two\\nlines", "developer-password", replies::KEY, "token.of"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(log.contains(r#""value":"hello""#), "what is no secret can be read");
}

#[test]
fn keys_and_names_are_ways_to_log_in() {
    let mut setting = setting();
    let service = setting.service.clone();
    let transcript = &mut setting.transcript;
    transcript.run_all(
        "
        support useCredentials support support
        support createDeveloperAlias 700 alice
        developer useCredentials alice developer-password
        developer printCurrent
        developer useApiKey wrong-key
        developer useApiKey omgk.700.900.wrong
        developer listTenants
        developer createToken
        support useCredentials admin admin
        developer useCredentials support support
        admin useCredentials 700 developer-password
        developer printCurrent
        ",
    );
    transcript.run_with_input("developer useApiKey -", &format!("{}\n", replies::KEY));
    transcript.run("developer printCurrent");
    transcript.run("developer listTenants --page-size 1");
    service.change(|world| drop(world.insert("expired".to_owned(), serde_json::json!(true))));
    transcript.run("developer renewToken");
    transcript.run("developer createToken");
    service.change(|world| drop(world.insert("expired".to_owned(), serde_json::json!(true))));
    transcript.run("developer listTenants").check("login");
}

#[test]
fn a_list_is_read_page_by_page_or_as_a_whole() {
    let mut setting = setting();
    run(setting.folder.path(), "support useCredentials support support");
    let transcript = &mut setting.transcript;
    transcript.run_all(
        "
        support listTenants --page-size 2
        support listTenants --page-size 2 --page-token 2
        support listTenants --page-size 1 --all
        support listTenants --page-size 2 --output json
        support listTenants --page-size 0
        ",
    );
    assert_eq!(
        setting
            .service
            .calls()
            .iter()
            .filter(|call| call.contains("list-tenants"))
            .count(),
        6
    );
    setting.transcript.check("lists");
}

#[test]
fn an_expired_token_is_replaced_once() {
    let setting = setting();
    let folder = setting.folder.path();
    run(folder, "developer useCredentials 700 developer-password");
    std::fs::write(folder.join("main.lua"), "").unwrap();
    let calls = |when: &str, face: &str, line: &str| {
        let seen = setting.service.calls().len();
        setting
            .service
            .change(|world| drop(world.insert("expired".to_owned(), serde_json::json!(when))));
        let mut command = crate::run::omgctl(folder);
        std::os::unix::process::CommandExt::arg0(&mut command, face);
        command.args(line.split_whitespace());
        let is_done = crate::run::answer(command, "").status.success();
        (
            is_done,
            setting.service.calls()[seen..].join(", ").replace("developer ", ""),
        )
    };
    let check = |when: &str, face: &str, line: &str, done: bool, expected: &str| {
        assert_eq!(calls(when, face, line), (done, expected.to_owned()), "{face} {line}");
    };
    let list = "developer listTenants";
    check("once", "omgctl", list, true, "list-tenants, create-token, list-tenants");
    check(
        "always",
        "omgctl",
        list,
        false,
        "list-tenants, create-token, list-tenants",
    );
    let upload = "developer uploadFilesArchive 100 400 .";
    let twice = "upload-files-archive, create-token, upload-files-archive";
    check("once", "omgctl", upload, true, twice);
    let change = "developer changePassword developer-password new";
    check("once", "omgctl", change, false, "change-password");
    let old = "developer getTenantDetails 100";
    check("once", "omgserversctl", old, false, "get-tenant-details");
    run(folder, &format!("developer useApiKey {}", replies::KEY));
    check("once", "omgctl", list, false, "list-tenants");
    // A build server has nothing but a key.
    std::fs::remove_file(folder.join(".omgserversctl/environment")).unwrap();
    run(folder, &format!("developer useApiKey {}", replies::KEY));
    let current = run(folder, "developer printCurrent");
    assert_eq!(
        current,
        "The current developer is whoever made the key; a key is used instead of the password.\n"
    );
}
