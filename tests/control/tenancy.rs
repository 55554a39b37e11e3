//! Tenants and what is in them: permissions, lists, archives, the audit log.

use futures_util::future::join_all;
use harness::{Installation, Options, Studio, eventually, game_config};
use omgservers_protocol::developer as dev;
use omgservers_protocol::support::{self, ProjectPermission, StagePermission, TenantPermission};
use omgservers_protocol::text::Secret;
use omgservers_protocol::{Call, admin, call::Paging};

use super::{in_seconds, page, place, refusal, refused, text, walk};
use crate::http::post_form;
use crate::routes::zip_with_a_file;

#[tokio::test(flavor = "multi_thread")]
async fn support_gives_and_takes_permissions_on_three_levels() {
    let installation = Installation::start(Options::default()).await;
    let support = installation.support().await;
    let tenant = text(support.send(&support::CreateTenant {}).await.expect("a tenant").id);
    let call = support::CreateProject { tenant: tenant.clone() };
    let made = support.send(&call).await.expect("a project");
    let (project, stage) = (text(made.project_id), text(made.stage_id));
    let (user, _, developer) = Studio::hire(&installation).await;

    // A project that support makes is nobody's.
    let details = dev::GetProjectDetails {
        tenant: tenant.clone(),
        project: project.clone(),
    };
    assert_eq!(
        refusal(&developer, &details).await,
        refused(403, "PERMISSION_NOT_FOUND")
    );

    let call = support::CreateProjectPermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        user_id: user,
        permissions_to_create: vec![
            ProjectPermission::ProjectViewer,
            ProjectPermission::ProjectViewer,
            ProjectPermission::StageManager,
        ],
    };
    let created = support.send(&call).await.expect("permissions").created_permissions;
    assert_eq!(
        created,
        [ProjectPermission::StageManager, ProjectPermission::ProjectViewer]
    );
    let again = support.send(&call).await.expect("answered").created_permissions;
    assert!(again.is_empty(), "what is there is not created again");
    let shown = developer.send(&details).await.expect("details").details;
    assert_eq!(shown.permissions.len(), 2);
    let call = support::DeleteProjectPermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        user_id: user,
        permissions_to_delete: vec![ProjectPermission::ProjectViewer, ProjectPermission::VersionManager],
    };
    let deleted = support.send(&call).await.expect("answered").deleted_permissions;
    assert_eq!(deleted, [ProjectPermission::ProjectViewer]);
    assert_eq!(
        refusal(&developer, &details).await,
        refused(403, "PERMISSION_NOT_FOUND")
    );

    let call = support::CreateStagePermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        user_id: user,
        permissions_to_create: StagePermission::ALL.to_vec(),
    };
    assert_eq!(
        support
            .send(&call)
            .await
            .expect("permissions")
            .created_permissions
            .len(),
        2
    );
    let call = support::DeleteStagePermissions {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        user_id: user,
        permissions_to_delete: vec![StagePermission::StageViewer],
    };
    assert_eq!(
        support.send(&call).await.expect("answered").deleted_permissions.len(),
        1
    );
    let call = support::ListPermissions {
        tenant: tenant.clone(),
        project: Some(project.clone()),
        stage: Some(stage.clone()),
        paging: Paging::default(),
    };
    let left = support.send(&call).await.expect("a list").items;
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].permission.as_str(), left[0].user_id),
        ("DEPLOYMENT_MANAGER", user)
    );

    // Unknown things are not found, deleted ones take nothing any more.
    let mut call = support::CreateTenantPermissions {
        tenant: text(1),
        user_id: user,
        permissions_to_create: vec![TenantPermission::TenantViewer],
    };
    assert_eq!(refusal(&support, &call).await, refused(404, "OBJECT_NOT_FOUND"));
    call.tenant = tenant.clone();
    call.user_id = 1.into();
    assert_eq!(refusal(&support, &call).await, refused(404, "OBJECT_NOT_FOUND"));
    call.permissions_to_create.clear();
    assert_eq!(
        refusal(&support, &call).await,
        refused(400, "VALIDATION_CONSTRAINT_VIOLATED")
    );
    let delete = support::DeleteTenant { tenant: tenant.clone() };
    assert!(support.send(&delete).await.expect("deleted").deleted);
    call.user_id = user;
    call.permissions_to_create = TenantPermission::ALL.to_vec();
    let created = support.send(&call).await.expect("answered").created_permissions;
    assert!(created.is_empty(), "a deleted tenant takes no permissions");
    let below = support::CreateProject { tenant: tenant.clone() };
    assert_eq!(refusal(&support, &below).await, refused(404, "PARENT_NOT_FOUND"));
    let alias = support::CreateTenantAlias {
        tenant_id: tenant.as_id().expect("an id").into(),
        alias: text("ghost"),
    };
    support.send(&alias).await.expect("accepted");
    let ghost = support::DeleteTenant { tenant: text("ghost") };
    assert!(!support.send(&ghost).await.expect("it leads there").deleted);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_builder_and_the_service_may_handle_the_images_of_every_project() {
    let installation = Installation::start(Options {
        configure: |config| config.bootstrap_service_user_password = Some("service".into()),
        ..Options::default()
    })
    .await;
    let support = installation.support().await;
    let tenant = text(support.send(&support::CreateTenant {}).await.expect("a tenant").id);
    let call = support::CreateProject { tenant: tenant.clone() };
    let project = support.send(&call).await.expect("a project").project_id;
    let call = support::ListPermissions {
        tenant,
        project: Some(text(project)),
        stage: None,
        paging: Paging::default(),
    };
    let granted = support.send(&call).await.expect("a list").items;
    // There is no builder here, and the service gets its permission all the same.
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].permission, "VERSION_MANAGER");
    let admin = installation.admin().await;
    let users = walk!(admin, 50, |paging| admin::ListUsers {
        role: Some(text("service")),
        paging
    });
    assert_eq!(users[0].id, granted[0].user_id);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_show_everything_once_however_the_pages_are_cut() {
    let installation = Installation::start(Options {
        databases: 2,
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let support = installation.support().await;
    let (tenant, project, stage) = place(&studio);
    let mut tenants = vec![studio.tenant];
    for _ in 0..12 {
        tenants.push(support.send(&support::CreateTenant {}).await.expect("a tenant").id);
    }
    for size in [1, 5, 500] {
        let mut seen: Vec<_> = walk!(support, size, |paging| support::ListTenants { paging })
            .iter()
            .map(|tenant| tenant.id)
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, tenants, "by {size}");
    }
    let own = walk!(studio.developer, 1, |paging| dev::ListTenants { paging });
    assert_eq!(own.iter().map(|tenant| tenant.id).collect::<Vec<_>>(), [studio.tenant]);

    for _ in 0..4 {
        let call = dev::CreateProject { tenant: tenant.clone() };
        studio.developer.send(&call).await.expect("a project");
        let call = dev::CreateStage {
            tenant: tenant.clone(),
            project: project.clone(),
        };
        studio.developer.send(&call).await.expect("a stage");
        studio.version(game_config(), "local://").await;
    }
    let call = dev::CreateStageAlias {
        tenant: tenant.clone(),
        stage_id: studio.stage,
        alias: text("prod"),
    };
    studio.developer.send(&call).await.expect("a name");
    let projects = walk!(studio.developer, 2, |paging| dev::ListProjects {
        tenant: tenant.clone(),
        paging
    });
    let stages = walk!(support, 2, |paging| support::ListStages {
        tenant: tenant.clone(),
        project: project.clone(),
        paging
    });
    let versions = walk!(studio.developer, 3, |paging| dev::ListVersions {
        tenant: tenant.clone(),
        project: project.clone(),
        paging
    });
    assert_eq!((projects.len(), stages.len(), versions.len()), (5, 5, 4));
    assert_eq!(stages[0].aliases[0].value, "prod");
    let version = versions[3].id;
    let images = walk!(studio.developer, 1, |paging| dev::ListImages {
        tenant: tenant.clone(),
        version_id: version,
        paging
    });
    assert_eq!(images.len(), 1);
    let call = dev::GetVersionConfig {
        tenant: tenant.clone(),
        version_id: version,
    };
    let config = studio.developer.send(&call).await.expect("the config").config;
    assert_eq!(
        serde_json::to_value(config).expect("JSON"),
        serde_json::to_value(game_config()).expect("JSON")
    );
    let config = serde_json::from_value(serde_json::json!({"min_lobbies": 0, "max_lobbies": 3})).expect("a config");
    let deployment = studio.deploy(version, Some(config)).await;
    let listed = async |history: bool| {
        walk!(studio.developer, 1, |paging| dev::ListDeployments {
            tenant: tenant.clone(),
            project: project.clone(),
            stage: stage.clone(),
            history,
            paging
        })
    };
    assert_eq!(listed(false).await[0].id, deployment);
    // Whoever wants to go back finds what ran before.
    let next = studio.deploy(version, None).await;
    eventually("the newest only", || async {
        let living = listed(false).await;
        (living.len() == 1 && living[0].id == next).then_some(())
    })
    .await;
    let history = listed(true).await;
    let ids: Vec<_> = history.iter().map(|one| (one.id, one.deleted.is_some())).collect();
    assert_eq!(ids, [(deployment, true), (next, false)]);
    let call = dev::GetDeploymentConfig {
        tenant: tenant.clone(),
        deployment_id: deployment,
    };
    let config = studio.developer.send(&call).await.expect("the config").config;
    assert_eq!((config.min_lobbies, config.max_lobbies), (0, 3));

    let admin = installation.admin().await;
    let developers = walk!(support, 1, |paging| support::ListDevelopers { paging });
    assert_eq!(developers.len(), 1);
    let users = walk!(admin, 2, |paging| admin::ListUsers { role: None, paging });
    let names: Vec<&str> = users
        .iter()
        .flat_map(|user| &user.aliases)
        .map(String::as_str)
        .collect();
    assert!(users.len() >= 4 && names.contains(&"admin") && names.contains(&"support"));
    let shards = walk!(admin, 3, |paging| admin::ListShards { paging });
    assert_eq!(
        shards.iter().map(|shard| shard.shard_index).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert!(
        shards
            .iter()
            .all(|shard| shard.bytes > 0 && shard.database == u32::from(shard.shard_index % 2))
    );
    let instances = walk!(admin, 1, |paging| admin::ListInstances { paging });
    assert!(instances.iter().any(|instance| instance.alive));
    let hosts = walk!(admin, 1, |paging| admin::ListHosts { paging });
    assert_eq!(hosts[0].docker_daemon_uri, "process://");

    for wrong in [
        page(0, None),
        page(501, None),
        page(5, Some("x".into())),
        page(5, Some("99.1".into())),
    ] {
        let answer = refusal(&support, &support::ListTenants { paging: wrong.clone() }).await;
        assert_eq!(answer, refused(400, "VALIDATION_CONSTRAINT_VIOLATED"), "{wrong:?}");
    }
    let call = admin::CalculateShard { shard_key: text("a/b") };
    assert_eq!(admin.send(&call).await.expect("a shard").shard_index, 1996 % 8);
    let call = admin::BcryptHash {
        value: omgservers_protocol::text::Secret::new("secret"),
    };
    let hash = admin.send(&call).await.expect("a hash").hash;
    assert!(hash.starts_with("$2") && hash.len() == 60, "{hash}");
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_kept_with_their_version_and_go_with_it() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "local://").await;
    let url = format!(
        "{}/service/v1/entrypoint/developer/request/upload-files-archive",
        installation.base
    );
    let fields = serde_json::json!({"tenant": studio.tenant, "tenantVersionId": version});
    let token = studio.developer.token();
    let answer = post_form(&url, token, &fields, ("version.zip", zip_with_a_file())).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let list = dev::ListFilesArchives {
        tenant: text(studio.tenant),
        version_id: version,
        paging: Paging::default(),
    };
    let archives = studio.developer.send(&list).await.expect("a list").items;
    assert_eq!((archives.len(), archives[0].files), (1, 1));
    assert_eq!(
        archives[0].bytes,
        i64::try_from(zip_with_a_file().len()).expect("a few bytes")
    );
    assert!(answer.body.contains(&archives[0].id.to_string()));
    for _ in 1..16 {
        let answer = post_form(&url, token, &fields, ("version.zip", zip_with_a_file())).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let more = post_form(&url, token, &fields, ("version.zip", zip_with_a_file())).await;
    assert_eq!((more.status, more.qualifier.as_str()), (400, "DB_CONSTRAINT_VIOLATED"));

    let call = dev::DeleteVersion {
        tenant: text(studio.tenant),
        id: version,
    };
    assert!(studio.developer.send(&call).await.expect("deleted").deleted);
    let late = post_form(&url, token, &fields, ("version.zip", zip_with_a_file())).await;
    assert_eq!((late.status, late.qualifier.as_str()), (404, "PARENT_NOT_FOUND"));
    eventually("its archives are gone", || async {
        let left = studio.developer.send(&list).await.expect("a list").items;
        left.is_empty().then_some(())
    })
    .await;
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_says_who_changed_what_and_no_secret() {
    let installation = Installation::start(Options {
        databases: 2,
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let (tenant, project, stage) = place(&studio);
    let call = dev::SetStageVariable {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        name: text("API_TOKEN"),
        value: omgservers_protocol::text::Secret::new("hunter2"),
        secret: true,
    };
    studio.developer.send(&call).await.expect("a secret");
    let version = studio.version(game_config(), "local://").await;
    studio.deploy(version, None).await;
    // What fails and what changes nothing is not in it.
    let call = dev::CreateProjectAlias {
        tenant: tenant.clone(),
        project_id: 1.into(),
        alias: text("x"),
    };
    assert_eq!(refusal(&studio.developer, &call).await.0, 404);

    let records = walk!(studio.developer, 2, |paging| dev::ListAuditRecords {
        tenant: tenant.clone(),
        paging
    });
    let told: Vec<(&str, &str)> = records
        .iter()
        .rev()
        .map(|record| (record.role.as_str(), record.operation.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("support", "create-tenant"),
            ("support", "create-tenant-permissions"),
            ("developer", "create-project"),
            ("developer", "set-stage-variable"),
            ("developer", "create-version"),
            ("developer", "create-image"),
            ("developer", "deploy-version"),
        ]
    );
    assert!(records.iter().take(5).all(|record| record.user_id == studio.user));
    let all = walk!(installation.admin().await, 3, |paging| admin::ListAuditRecords {
        paging
    });
    assert!(all.iter().any(|record| record.operation == "create-developer"));
    let names = |role: &str| {
        all.iter()
            .filter(|record| record.role == role)
            .all(|record| record.user_alias.as_deref() == Some(role))
    };
    assert!(names("support"), "who it was is said by name");
    assert!(all.windows(2).all(|pair| pair[0].id > pair[1].id), "the newest first");
    assert!(!format!("{records:?}{all:?}").contains("hunter2"));
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_something_deleted_leads_there_until_it_is_given_to_something_else() {
    let installation = Installation::start(Options::default()).await;
    let support = installation.support().await;
    let studio = Studio::open(&installation).await;
    let name_tenant = |tenant, name: &str| support::CreateTenantAlias {
        tenant_id: tenant,
        alias: text(name),
    };
    support.send(&name_tenant(studio.tenant, "acme")).await.expect("a name");
    let name_project = dev::CreateProjectAlias {
        tenant: text("acme"),
        project_id: studio.project,
        alias: text("game"),
    };
    studio.developer.send(&name_project).await.expect("a name");
    let delete_project = dev::DeleteProject {
        tenant: text("acme"),
        project: text("game"),
    };
    assert!(studio.developer.send(&delete_project).await.expect("deleted").deleted);
    // Whether its names have been freed meanwhile or not: it is there, and it is deleted.
    for _ in 0..5 {
        assert!(!studio.developer.send(&delete_project).await.expect("answered").deleted);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let other = dev::CreateProject { tenant: text("acme") };
    let other = studio.developer.send(&other).await.expect("a project").project_id;
    eventually("the name is free", || async {
        let call = dev::CreateProjectAlias {
            tenant: text("acme"),
            project_id: other,
            alias: text("game"),
        };
        studio.developer.send(&call).await.ok()
    })
    .await;
    assert!(
        studio.developer.send(&delete_project).await.expect("deleted").deleted,
        "now it is the name of the other one"
    );

    let delete = support::DeleteTenant { tenant: text("acme") };
    assert!(support.send(&delete).await.expect("deleted").deleted);
    let late = support::CreateProject { tenant: text("acme") };
    let again = support.send(&support::CreateTenant {}).await.expect("a tenant").id;
    eventually("the name of the tenant is free", || async {
        assert!(!support.send(&delete).await.expect("answered").deleted);
        assert_eq!(refusal(&support, &late).await, refused(404, "PARENT_NOT_FOUND"));
        support.send(&name_tenant(again, "other")).await.ok()?;
        support.send(&name_tenant(studio.tenant, "late")).await.ok()
    })
    .await;
    // A name for what is deleted is accepted, and keeps nobody else from having it.
    let call = support::DeleteTenant { tenant: text("late") };
    assert!(!support.send(&call).await.expect("answered").deleted);
    support.send(&name_tenant(again, "late")).await.expect("it is free");
    assert!(support.send(&call).await.expect("deleted").deleted);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_version_is_never_deployed() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    for _ in 0..5 {
        let version = studio.version(game_config(), "local://").await;
        let call = dev::DeleteVersion {
            tenant: text(studio.tenant),
            id: version,
        };
        assert!(studio.developer.send(&call).await.expect("deleted").deleted);
        let deploy = dev::DeployVersion {
            tenant: text(studio.tenant),
            project: text(studio.project),
            stage: text(studio.stage),
            version_id: version,
            config: None,
        };
        assert_eq!(
            refusal(&studio.developer, &deploy).await,
            refused(409, "WRONG_VERSION_STATE"),
            "though its images may still be there"
        );
    }
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_cannot_tell_a_tenant_that_is_there_from_one_that_is_not() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let support = installation.support().await;
    let call = support::CreateTenantAlias {
        tenant_id: studio.tenant,
        alias: text("acme"),
    };
    support.send(&call).await.expect("a name");
    let (.., stranger) = Studio::hire(&installation).await;
    let mut answers = Vec::new();
    for tenant in [text("acme"), text(studio.tenant), text("nonesuch"), text("12345")] {
        let call = dev::GetTenantQuotas { tenant };
        let refused = stranger.send(&call).await.expect_err("refused");
        answers.push((refused.status(), refused.to_string()));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    installation.stop().await;
}

/// Asks for a few at a time, all at once: how many of them were made. The others are refused as too many.
async fn made_at_once<C: Call>(studio: &Studio, calls: Vec<C>) -> usize {
    let mut made = 0;
    for few in calls.chunks(24) {
        for answer in join_all(few.iter().map(|call| studio.developer.send(call))).await {
            match answer {
                Ok(_) => made += 1,
                Err(refused) => assert_eq!(refused.status(), Some(400), "{refused}"),
            }
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn names_variables_and_keys_have_their_limits_also_for_those_who_come_at_once() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let (tenant, project, stage) = place(&studio);
    let name = |number: u32| dev::CreateProjectAlias {
        tenant: tenant.clone(),
        project_id: studio.project,
        alias: text(format!("name-{number}")),
    };
    let variable = |number: u32| dev::SetStageVariable {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        name: text(format!("KEY_{number}")),
        value: Secret::new("x"),
        secret: false,
    };
    let key = |number: u32| dev::CreateApiKey {
        tenant: tenant.clone(),
        project: None,
        name: text(format!("build server {number}")),
        scopes: vec![dev::Scope::Read],
        expires: in_seconds(3600),
    };
    assert_eq!(made_at_once(&studio, (0..24).map(name).collect()).await, 16);
    assert_eq!(made_at_once(&studio, (0..120).map(variable).collect()).await, 100);
    assert_eq!(made_at_once(&studio, (0..120).map(key).collect()).await, 100);
    installation.stop().await;
}
