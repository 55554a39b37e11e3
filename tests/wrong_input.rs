//! Wrong input gets a clear error with the right status and qualifier, and changes nothing.

mod archives;
mod limits;

use harness::{Installation, Options, Studio, game_config};
use omgservers_protocol::token::Role;
use reqwest::Method;
use serde_json::json;

use crate::http::{Answer, post, send};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_refused_with_the_right_words_and_changes_nothing() {
    let installation = Installation::start(Options::default()).await;
    let studio = Studio::open(&installation).await;
    let token = installation.services[0]
        .app()
        .tokens
        .for_user(studio.user, Role::Developer, 0);
    let (tenant, project, stage) = (studio.tenant, studio.project, studio.stage);
    let area = format!("{}/service/v1/entrypoint/developer/request", installation.base);
    let (wrong, invalid) = ((400, "WRONG_REQUEST"), (400, "VALIDATION_CONSTRAINT_VIOLATED"));
    let long = "x".repeat(65);
    let config = |min: u32, max: u32, groups: serde_json::Value| {
        json!({"tenant": tenant, "project": project,
            "config": {"modes": [{"name": "duel", "min_players": min, "max_players": max, "groups": groups}]}})
    };
    let group = |min: u32, max: u32| json!([{"name": "red", "min_players": min, "max_players": max}]);
    for (operation, body, expected) in [
        ("create-project", json!({}), invalid),
        ("create-project", json!({"tenant": null}), invalid),
        ("create-project", json!({"tenant": "  "}), invalid),
        ("create-project", json!({"tenant": long}), invalid),
        ("create-project", json!({"tenant": {"id": 1}}), wrong),
        ("create-project", json!([1]), wrong),
        (
            "create-project",
            json!({"tenant": "nobody' or 1=1; drop table tenant; --"}),
            (404, "OBJECT_NOT_FOUND"),
        ),
        (
            "create-project-alias",
            json!({"tenant": tenant, "project_id": project, "alias": "123"}),
            invalid,
        ),
        (
            "create-project-alias",
            json!({"tenant": tenant, "project_id": "x", "alias": "a"}),
            wrong,
        ),
        (
            "create-project-alias",
            json!({"tenant": tenant, "project_id": 1, "alias": "a"}),
            (404, "OBJECT_NOT_FOUND"),
        ),
        ("create-version", json!({"tenant": tenant, "project": project}), invalid),
        (
            "create-version",
            json!({"tenant": tenant, "project": project, "config": {"modes": 7}}),
            wrong,
        ),
        ("create-version", config(2, 1, group(1, 1)), invalid),
        ("create-version", config(1, 2, json!([])), invalid),
        ("create-version", config(1, 2, group(0, 1)), invalid),
        ("create-version", config(1, 1, group(2, 2)), invalid),
        (
            "create-version",
            config(
                0,
                9_999_999,
                json!([{"name": long, "min_players": 1, "max_players": 1}]),
            ),
            invalid,
        ),
        (
            "get-version-details",
            json!({"tenant": tenant, "version_id": "1"}),
            (404, "OBJECT_NOT_FOUND"),
        ),
        (
            "deploy-version",
            json!({"tenant": tenant, "project": project, "stage": stage, "version_id": "1"}),
            (409, "WRONG_VERSION_STATE"),
        ),
        (
            "get-stage-details",
            json!({"tenant": tenant, "project": project, "stage": "nowhere"}),
            (404, "OBJECT_NOT_FOUND"),
        ),
    ] {
        let Answer {
            status,
            qualifier,
            body: said,
        } = post(&format!("{area}/{operation}"), Some(&token), &body).await;
        assert_eq!((status, qualifier.as_str()), expected, "{operation} {body}: {said}");
        assert!(said.contains("\"message\":\""), "{said}");
    }
    let url = format!("{area}/create-project");
    let good = json!({"tenant": tenant}).to_string();
    for (method, kind, body, expected) in [
        (Method::POST, "application/json", "{".to_owned(), wrong),
        (Method::POST, "application/json", String::new(), invalid),
        (Method::POST, "text/plain", good.clone(), (400, "WRONG_MEDIA_TYPE")),
        (Method::GET, "application/json", String::new(), (405, "WRONG_REQUEST")),
        (Method::DELETE, "application/json", good.clone(), (405, "WRONG_REQUEST")),
        (
            Method::POST,
            "application/json",
            format!("{good}{}", " ".repeat(11 * 1_024 * 1_024)),
            (413, "WRONG_REQUEST"),
        ),
    ] {
        let size = body.len();
        let answer = send(method.clone(), &url, Some(&token), kind, body).await;
        assert_eq!(
            (answer.status, answer.qualifier.as_str()),
            expected,
            "{method} {kind} {size} bytes: {}",
            answer.body
        );
    }
    // What the first command-line tool sends, and an unknown path.
    let put = send(Method::PUT, &url, Some(&token), "application/json; charset=utf-8", good).await;
    assert_eq!(put.status, 200, "{}", put.body);
    let nowhere = post(&format!("{area}/no-such-operation"), Some(&token), &json!({})).await;
    assert_eq!((nowhere.status, nowhere.qualifier.as_str()), (404, "OBJECT_NOT_FOUND"));

    // One alias is for one thing.
    let alias = json!({"tenant": tenant, "project_id": project, "alias": "shooter"});
    assert_eq!(
        post(&format!("{area}/create-project-alias"), Some(&token), &alias)
            .await
            .status,
        200
    );
    let taken = post(&format!("{area}/create-project-alias"), Some(&token), &alias).await;
    assert_eq!(
        (taken.status, taken.qualifier.as_str()),
        (400, "DB_CONSTRAINT_VIOLATED"),
        "{}",
        taken.body
    );

    // Nothing but the one project of the PUT was made.
    let details = post(
        &format!("{area}/get-tenant-details"),
        Some(&token),
        &json!({"tenant": tenant}),
    )
    .await;
    let details: serde_json::Value = serde_json::from_str(&details.body).expect("JSON");
    assert_eq!(
        details["details"]["projects"].as_array().map(Vec::len),
        Some(2),
        "{details}"
    );
    let project = post(
        &format!("{area}/get-project-details"),
        Some(&token),
        &json!({"tenant": tenant, "project": "shooter"}),
    )
    .await;
    let project: serde_json::Value = serde_json::from_str(&project.body).expect("JSON");
    assert_eq!(project["details"]["versions"], json!([]), "{project}");
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_things_take_everything_below_them_along() {
    let installation = Installation::start(Options {
        databases: 2,
        ..Options::default()
    })
    .await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "nowhere/game:1").await;
    let deployment = studio.deploy(version, None).await;
    let support = installation.support().await;
    let call = omgservers_protocol::support::DeleteTenant {
        tenant: omgservers_protocol::text::Text::new(studio.tenant.to_string()).expect("an id"),
    };
    assert!(support.send(&call).await.expect("deleted").deleted);
    assert!(
        !support.send(&call).await.expect("answered").deleted,
        "what is deleted is not deleted again"
    );
    let token = installation.services[0]
        .app()
        .tokens
        .for_user(studio.user, Role::Developer, 0);
    let url = |operation: &str| {
        format!(
            "{}/service/v1/entrypoint/developer/request/{operation}",
            installation.base
        )
    };
    harness::eventually("the permissions are gone", || async {
        let body = json!({"tenant": studio.tenant, "deployment_id": deployment});
        (post(&url("get-deployment-details"), Some(&token), &body).await.status == 403).then_some(())
    })
    .await;
    let call = omgservers_protocol::player::CreateClient {
        tenant: omgservers_protocol::text::Text::new(studio.tenant.to_string()).expect("an id"),
        project: omgservers_protocol::text::Text::new(studio.project.to_string()).expect("an id"),
        stage: omgservers_protocol::text::Text::new(studio.stage.to_string()).expect("an id"),
    };
    let player = installation.services[0]
        .app()
        .tokens
        .for_user(omgservers_protocol::id::UserId(1), Role::Player, 0);
    let refused = installation
        .client()
        .with_token(player)
        .send(&call)
        .await
        .err()
        .and_then(|cause| cause.status());
    assert_eq!(refused, Some(404), "nobody can play what is deleted");
    installation.stop().await;
}
