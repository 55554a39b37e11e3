//! Whether the tables and the audit log tell the same story.

use std::collections::BTreeMap;

use super::walk::Walk;

/// Rows of the database as sorted lines of text.
async fn lines(walk: &Walk, query: &str) -> Vec<String> {
    let rows: Vec<(String,)> = walk.durable.query(query).await;
    let mut lines: Vec<String> = rows.into_iter().map(|(line,)| line).collect();
    lines.sort_unstable();
    lines
}

/// What the audit log says of an operation.
async fn noted(walk: &Walk, what: &str, operations: &str) -> Vec<String> {
    let query = format!("select id || '|' || {what} from $schema.audit where operation in ({operations})");
    // On its way to its tenant's shard a record is in two places for a moment: it is one all the same.
    let mut records = lines(walk, &query).await;
    records.dedup();
    let told = |record: &String| record.split_once('|').map(|(_, what)| what.to_owned());
    let mut told: Vec<String> = records.iter().filter_map(told).collect();
    told.sort_unstable();
    told
}

/// While everything is there: each change has its one record, and nothing is half there.
pub(super) async fn balance(walk: &Walk) {
    for (operations, table) in [
        ("'create-tenant'", "tenant"),
        ("'create-project'", "project"),
        ("'create-version'", "version"),
        ("'deploy-version'", "deployment"),
        ("'create-api-key'", "api_key"),
    ] {
        let rows = lines(walk, &format!("select id::text from $schema.{table}")).await;
        assert_eq!(noted(walk, "target", operations).await, rows, "{operations}");
    }
    let developers = lines(walk, "select id::text from $schema.account where role = 'developer'").await;
    assert_eq!(noted(walk, "target", "'create-developer'").await, developers);

    for (operation, noted_as, rows) in [
        (
            "'create-tenant-alias', 'create-developer-alias', 'create-project-alias', 'create-stage-alias'",
            "target || ' ' || detail",
            "select entity_id || ' ' || value from $schema.alias where qualifier <> 'POOL'",
        ),
        (
            "'upload-files-archive'",
            "target || ' ' || detail",
            "select version_id || ' sha256 ' || sha256 from $schema.files_archive",
        ),
        (
            "'create-image'",
            "target || ' ' || detail",
            "select version_id || ' ' || qualifier || ' ' || image from $schema.image",
        ),
    ] {
        let rows = lines(walk, rows).await;
        assert_eq!(noted(walk, noted_as, operation).await, rows, "{operation}");
    }
    // A variable may be set again; each time is noted.
    let mut variables = noted(walk, "target || ' ' || detail", "'set-stage-variable'").await;
    variables.dedup();
    let rows = lines(walk, "select stage_id || ' ' || name from $schema.stage_variable").await;
    assert_eq!(variables, rows);

    permissions(walk).await;
    names_lead_somewhere(walk).await;
    settle("the newest deployment alone has a cell, with all its lobbies", || {
        running(walk)
    })
    .await;
}

/// What is wrong with what runs.
async fn running(walk: &Walk) -> Vec<String> {
    let cells = lines(walk, "select deployment_id::text from $schema.cell").await;
    let lobbies = "select deployment_id::text from $schema.venue where state <> 'GONE'";
    let lobbies = lines(walk, lobbies).await;
    let asked = noted(walk, "target", "'create-lobby-request'").await;
    let newest = walk.fact("deployment").to_string();
    // One that was asked for before the first was made is the first.
    let is_right = cells == [newest.clone()]
        && (asked.len()..=asked.len() + 1).contains(&lobbies.len())
        && lobbies.iter().chain(&asked).all(|deployment| *deployment == newest);
    let mut wrong = due(walk).await;
    if !is_right {
        wrong.push(format!(
            "cells {cells:?}, lobbies {lobbies:?}, asked for {asked:?}, newest {newest}"
        ));
    }
    wrong
}

/// Waits until nothing is left to say.
async fn settle<F: Future<Output = Vec<String>>>(what: &str, left: impl Fn() -> F) {
    let begun = std::time::Instant::now();
    loop {
        let left = left().await;
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < harness::DEADLINE, "waited in vain: {what}: {left:#?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Every permission is noted: those that support gave, and those of whoever made a project or stage.
async fn permissions(walk: &Walk) {
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    let given = "'create-tenant-permissions', 'create-project-permissions', 'create-stage-permissions'";
    for line in noted(walk, "target || ' ' || detail", given).await {
        let words: Vec<&str> = line.split(' ').collect();
        let (target, user) = (words[0], words[words.len() - 1]);
        for permission in &words[1..words.len() - 3] {
            *expected.entry(format!("{target} {user} {permission}")).or_default() += 1;
        }
    }
    let user = walk.fact("user");
    for project in lines(walk, "select id::text from $schema.project").await {
        for permission in ["STAGE_MANAGER", "VERSION_MANAGER", "PROJECT_VIEWER"] {
            *expected.entry(format!("{project} {user} {permission}")).or_default() += 1;
        }
    }
    for stage in lines(walk, "select id::text from $schema.stage").await {
        *expected
            .entry(format!("{stage} {user} DEPLOYMENT_MANAGER"))
            .or_default() += 1;
    }
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for level in ["tenant", "project", "stage"] {
        let query = format!("select {level}_id || ' ' || user_id || ' ' || permission from $schema.{level}_permission");
        for line in lines(walk, &query).await {
            *found.entry(line).or_default() += 1;
        }
    }
    assert_eq!(found, expected);
    // A project comes with its first stage; every other one was asked for.
    let alone = "select id::text from $schema.project where not exists (select 1 from $schema.stage where project_id = project.id)";
    assert_eq!(lines(walk, alone).await, [""; 0]);
    let stages = lines(walk, "select id::text from $schema.stage").await.len();
    let asked = noted(walk, "target", "'create-project', 'create-stage'").await.len();
    assert_eq!(stages, asked);
}

async fn names_lead_somewhere(walk: &Walk) {
    let mut entities = Vec::new();
    for table in ["tenant", "account", "project", "stage"] {
        entities.extend(lines(walk, &format!("select id::text from $schema.{table}")).await);
    }
    for name in lines(
        walk,
        "select entity_id::text from $schema.alias where qualifier <> 'POOL'",
    )
    .await
    {
        assert!(entities.contains(&name), "a name leads to {name}, which is not there");
    }
}

/// What waits to be done.
async fn due(walk: &Walk) -> Vec<String> {
    lines(
        walk,
        "select kind || ' ' || key || coalesce(' ' || error, '') from $schema.event where not_before <= now()",
    )
    .await
}

/// In the end: nothing is left but the log of what happened, and those who are not the tenant's.
pub(super) async fn close(walk: &Walk) {
    let tables: Vec<(String,)> = walk
        .durable
        .query("select table_name::text from information_schema.tables where table_schema = '$schema'")
        .await;
    let mut tables: Vec<String> = tables.into_iter().map(|(table,)| table).collect();
    tables.sort_unstable();
    tables.dedup();
    assert!(tables.len() > 20, "{tables:?}");
    let mut left = Vec::new();
    for table in tables {
        let kept = match table.as_str() {
            "audit" | "usage" | "host" | "_sqlx_migrations" => continue,
            "alias" => "qualifier <> 'POOL'",
            "account" => "role = 'developer'",
            _ => "true",
        };
        left.push(format!(
            "select '{table}: ' || to_jsonb({table})::text from $schema.{table} where {kept}"
        ));
    }
    let query = left.join(" union all ");
    settle("nothing is left", || lines(walk, &query)).await;
    for (operation, times) in [
        ("'delete-tenant'", "'create-tenant'"),
        ("'delete-developer'", "'create-developer'"),
    ] {
        let (gone, made) = (
            noted(walk, "target", operation).await,
            noted(walk, "target", times).await,
        );
        assert_eq!(gone, made, "{operation}");
    }
}
