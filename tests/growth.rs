//! A tenant that has been there for years: a thousand projects and ten thousand deployments. What is asked today reads
//! little of it, and all of it can be deleted, bit by bit, also by a service that is killed half way. So can a deployment
//! with thousands of players.

use std::collections::{BTreeMap, HashSet};

use harness::{Durable, ServiceProcess, eventually};
use omgservers_protocol::id::UserId;
use omgservers_protocol::token::Role;
use serde_json::{Value, json};

use crate::http::{post, try_post};

const PROJECTS: usize = 1_000;
const DEPLOYMENTS: usize = 10_000;
const VERSIONS: usize = 2_000;
/// Rows that a transaction may change, whatever is deleted: thirteen kinds of things at five hundred each.
const CHANGED_MAX: i64 = 6_500;
const PLAYERS: i64 = 2_000;
const MATCHES: i64 = 500;
/// Seats and venues that a transaction may change: as many as a plan may have steps.
const STEPS_MAX: i64 = 512;

struct Studio {
    durable: Durable,
    service: ServiceProcess,
    tenant: i64,
    user: i64,
    project: i64,
    stage: i64,
    version: i64,
}

impl Studio {
    async fn open(shards: u16) -> Self {
        let durable = Durable::start(shards).await;
        let service = ServiceProcess::start(&durable, "service", &[]).await;
        let mut studio = Self {
            durable,
            service,
            tenant: 0,
            user: 0,
            project: 0,
            stage: 0,
            version: 0,
        };
        let id =
            |answer: &Value, field: &str| -> i64 { answer[field].as_str().expect("an id").parse().expect("an id") };
        studio.tenant = id(&studio.support("create-tenant", json!({})).await, "id");
        studio.user = id(&studio.support("create-developer", json!({})).await, "user_id");
        let permissions =
            json!({"user_id": studio.user, "permissions_to_create": ["PROJECT_MANAGER", "TENANT_VIEWER"]});
        studio.support("create-tenant-permissions", permissions).await;
        let made = studio.developer("create-project", json!({})).await;
        (studio.project, studio.stage) = (id(&made, "project_id"), id(&made, "stage_id"));
        let config = json!({"project": studio.project, "config": {"modes": []}});
        studio.version = id(&studio.developer("create-version", config).await, "version_id");
        let image = json!({"project": studio.project, "version": studio.version, "qualifier": "UNIVERSAL", "image": "local://"});
        studio.developer("create-image", image).await;
        studio
    }

    async fn call(&self, role: Role, operation: &str, mut body: Value) -> Value {
        let area = role.as_str();
        body["tenant"] = json!(self.tenant);
        let url = format!("{}/service/v1/entrypoint/{area}/request/{operation}", self.service.base);
        let token = self.durable.tokens.for_user(UserId(self.user), role, 0);
        let answer = post(&url, Some(&token), &body).await;
        assert_eq!(answer.status, 200, "{operation} {body}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    async fn support(&self, operation: &str, body: Value) -> Value {
        self.call(Role::Support, operation, body).await
    }

    async fn developer(&self, operation: &str, body: Value) -> Value {
        self.call(Role::Developer, operation, body).await
    }

    async fn deploy(&self) -> i64 {
        let body = json!({"project": self.project, "stage": self.stage, "version_id": self.version});
        let made = self.developer("deploy-version", body).await;
        made["deployment_id"].as_str().expect("an id").parse().expect("an id")
    }

    /// The years before: written past the API, as it would have written it. Ids of the past are smaller than any of today.
    async fn remember(&self) {
        let Self {
            tenant,
            user,
            project,
            stage,
            version,
            ..
        } = self;
        let past = tenant - (1 << 45);
        let (projects, versions) = (PROJECTS - 1, VERSIONS - 1);
        self.durable
            .execute_at(
                *tenant,
                &format!(
                    "insert into project (id, tenant_id) select {past} + n, {tenant} from generate_series(1, {projects}) n;
                     insert into stage (id, tenant_id, project_id) select {past} + 10000 + n, {tenant}, {past} + n from generate_series(1, {projects}) n;
                     insert into alias (id, qualifier, shard_key, uniqueness_group, entity_id, value)
                       select {past} + 20000 + n, 'PROJECT', {tenant}, {tenant}, {past} + n, 'game-' || n from generate_series(1, {projects}) n;
                     insert into project_permission (id, tenant_id, project_id, user_id, permission)
                       select {past} + 30000 + 3 * n + p, {tenant}, {past} + n, {user}, (array['STAGE_MANAGER', 'VERSION_MANAGER', 'PROJECT_VIEWER'])[p]
                       from generate_series(1, {projects}) n, generate_series(1, 3) p;
                     insert into stage_permission (id, tenant_id, stage_id, user_id, permission)
                       select {past} + 40000 + n, {tenant}, {past} + 10000 + n, {user}, 'DEPLOYMENT_MANAGER' from generate_series(1, {projects}) n;
                     insert into stage_variable (tenant_id, stage_id, name, value)
                       select {tenant}, {stage}, 'KEY_' || n, 'x' from generate_series(1, 100) n;
                     insert into stage_variable (tenant_id, stage_id, name, value)
                       select {tenant}, {past} + 10000 + n, 'KEY_' || m, 'x' from generate_series(1, 50) n, generate_series(1, 100) m;
                     insert into version (id, tenant_id, project_id, config)
                       select {past} + 50000 + n, {tenant}, {project}, '{{\"modes\":[]}}' from generate_series(1, {versions}) n;
                     insert into image (id, tenant_id, version_id, qualifier, image)
                       select {past} + 60000 + n, {tenant}, {past} + 50000 + n, 'UNIVERSAL', 'game:' || n from generate_series(1, {versions}) n;
                     insert into deployment (id, tenant_id, stage_id, version_id, matchmaker_id, config, created, deleted, draining, cell_state)
                       select {past} + 100000 + n, {tenant}, {stage}, {version}, {past} + 200000 + n, '{{}}',
                         now() - (1 + {DEPLOYMENTS} - n) * interval '30 seconds', now() - ({DEPLOYMENTS} - n) * interval '30 seconds', false, 'CLOSING'
                       from generate_series(1, {DEPLOYMENTS}) n;
                     insert into audit (id, user_id, role, operation, tenant_id, target, detail)
                       select {past} + 300000 + n, {user}, 'developer', 'deploy-version', {tenant}, {past} + 100000 + n, 'long ago'
                       from generate_series(1, {DEPLOYMENTS}) n;
                     insert into usage (tenant_id, day, slot) select {tenant}, current_date - n, n from generate_series(1, 300) n;
                     analyze"
                ),
            )
            .await;
    }

    /// All pages of a list, by what each item is known by.
    async fn pages(&self, operation: &str, mut body: Value, size: u32) -> Vec<String> {
        let mut found = Vec::new();
        body["page_size"] = json!(size);
        loop {
            let page = self.developer(operation, body.clone()).await;
            let items = page["items"].as_array().expect("items");
            assert!(items.len() <= size as usize);
            for item in items {
                let key = ["id", "name", "day"].iter().find_map(|field| item[field].as_str());
                found.push(key.expect("something to be known by").to_owned());
            }
            match page["next_page_token"].as_str() {
                Some(token) => body["page_token"] = json!(token),
                None => return found,
            }
        }
    }

    /// Rows that were read so far, by table. Connections of the service are closed for it: only then do they say.
    async fn reads(&self) -> BTreeMap<String, i64> {
        self.durable
            .execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'omgservers-service'")
            .await;
        let rows: Vec<(String, i64)> = self
            .durable
            .query(
                "select relname::text, (seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_user_tables where schemaname = '$schema'",
            )
            .await;
        let mut reads = BTreeMap::new();
        for (table, count) in rows {
            *reads.entry(table).or_default() += count;
        }
        // Those that the workers look through all the time, growth or not.
        for busy in ["event", "lease", "_sqlx_migrations"] {
            reads.remove(busy);
        }
        reads
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_not_read_by_the_requests_and_deployments_of_today() {
    // All in one shard, where most is in the way of everything else.
    let studio = Studio::open(1).await;
    studio.remember().await;
    let newest = studio.deploy().await;
    let (project, stage, version) = (studio.project, studio.stage, studio.version);
    let on_project = json!({"project": project});
    let on_stage = json!({"project": project, "stage": stage});
    let on_deployment = json!({"deployment_id": newest});
    eventually("the deployment has its lobby", || async {
        let details = studio.developer("get-deployment-details", on_deployment.clone()).await;
        (details["details"]["lobby_refs"].as_array().map(Vec::len) == Some(1)).then_some(())
    })
    .await;

    // Details show up to 500 of each kind, pages 50 unless asked for more.
    for (operation, body, reads_max) in [
        ("get-tenant-details", json!({}), 3_000),
        ("get-project-details", on_project.clone(), 3_000),
        ("get-stage-details", on_stage.clone(), 1_000),
        ("get-deployment-details", on_deployment.clone(), 100),
        ("get-version-details", json!({"version_id": version}), 100),
        // Of a thousand names all are read: that is cheaper than fifty look-ups.
        ("list-projects", json!({}), 1_500),
        ("list-stages", on_project.clone(), 400),
        ("list-versions", on_project.clone(), 400),
        ("list-deployments", on_stage.clone(), 400),
        ("list-lobbies", on_deployment.clone(), 100),
        ("list-clients", on_deployment.clone(), 100),
        ("list-audit-records", json!({}), 400),
        ("list-permissions", on_project.clone(), 400),
        ("list-stage-variables", on_stage.clone(), 400),
        ("list-usage", json!({}), 400),
        // Who may do much has many permissions.
        ("list-tenants", json!({}), 5_000),
    ] {
        let before = studio.reads().await;
        studio.developer(operation, body).await;
        check(operation, &before, &studio.reads().await, reads_max);
    }
    // A deployment on top of all that, and what becomes of the one before.
    let before = studio.reads().await;
    let again = studio.deploy().await;
    eventually("the deployment before is gone for good", || async {
        let query =
            format!("select id, cell_state from $schema.deployment where id in ({newest}, {again}) and not draining");
        let rows: Vec<(i64, String)> = studio.durable.query(&query).await;
        (rows.len() == 2 && rows.contains(&(newest, "CLOSING".into()))).then_some(())
    })
    .await;
    check("deploy-version", &before, &studio.reads().await, 2_000);

    for (operation, body, count) in [
        ("list-projects", json!({}), PROJECTS),
        ("list-versions", on_project, VERSIONS),
        ("list-deployments", on_stage.clone(), 1),
        ("list-stage-variables", on_stage, 100),
        ("list-usage", json!({}), 300),
    ] {
        let found = studio.pages(operation, body, 99).await;
        assert_eq!(found.len(), count, "{operation}");
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), count, "{operation}");
    }
    let noted = studio.pages("list-audit-records", json!({}), 500).await;
    assert!(noted.len() > DEPLOYMENTS && noted.iter().collect::<HashSet<_>>().len() == noted.len());
    drop(studio.service);
    studio.durable.stop().await;
}

fn check(operation: &str, before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>, reads_max: i64) {
    let read: BTreeMap<&String, i64> = after
        .iter()
        .map(|(table, count)| (table, count - before.get(table).copied().unwrap_or(0)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let sum: i64 = read.values().sum();
    assert!(
        sum <= reads_max,
        "{operation} read {sum} rows, more than {reads_max}: {read:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_deleted_bit_by_bit_also_by_a_service_that_is_killed() {
    let mut studio = Studio::open(8).await;
    studio.remember().await;
    studio.deploy().await;
    let tables = [
        "project",
        "stage",
        "version",
        "image",
        "deployment",
        "alias",
        "project_permission",
        "stage_permission",
        "stage_variable",
    ];
    watch_changes(&studio, &tables, "version").await;
    assert_eq!(studio.support("delete-tenant", json!({})).await["deleted"], true);
    eventually("a part of it is deleted", || async {
        let alive = count(&studio, "select count(*) from $schema.project where deleted is null").await;
        (alive < PROJECTS as i64).then_some(())
    })
    .await;
    studio.service.kill();
    let left = count(&studio, "select count(*) from $schema.version where deleted is null").await;
    assert!(left > 0, "the service was killed too late");
    // From now on even tombstones go at once.
    studio.service.set("OMGSERVERS_TOMBSTONES_RETENTION", "1s");
    studio.service.restart().await;
    let query = [
        "project",
        "stage",
        "version",
        "image",
        "deployment",
        "alias",
        "project_permission",
        "stage_permission",
        "stage_variable",
        "cell",
        "runtime",
        "event",
    ]
    .map(|table| match table {
        "alias" => "select 'alias' from $schema.alias where qualifier <> 'POOL'".to_owned(),
        _ => format!("select '{table}' from $schema.{table}"),
    })
    .join(" union all ");
    eventually("everything is gone", || async {
        count(&studio, &format!("select count(*) from ({query}) as left_over"))
            .await
            .eq(&0)
            .then_some(())
    })
    .await;
    let most = most_changes(&studio).await;
    assert!((1..=CHANGED_MAX).contains(&most), "a transaction changed {most} rows");
    let url = format!(
        "{}/service/v1/entrypoint/player/request/ping-service",
        studio.service.base
    );
    assert!(try_post(&url, None, &json!({"message": "ping"})).await.is_some());
    drop(studio.service);
    studio.durable.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_sent_home_bit_by_bit_also_by_a_service_that_is_killed() {
    let mut studio = Studio::open(8).await;
    let deployment = studio.deploy().await;
    let on_deployment = json!({"deployment_id": deployment});
    let lobbies = async || {
        let details = studio.developer("get-deployment-details", on_deployment.clone()).await;
        details["details"]["lobby_refs"].as_array().map(Vec::len)
    };
    eventually("the deployment has its lobby", || async {
        (lobbies().await == Some(1)).then_some(())
    })
    .await;
    let past = deployment - (1 << 45);
    let each = PLAYERS / MATCHES;
    studio
        .durable
        .execute_at(
            deployment,
            &format!(
                "insert into venue (id, deployment_id, runtime_id, qualifier, mode, state)
                   select {past} + n, {deployment}, {past} + 10000 + n, 'MATCH', 'arena', 'OPEN' from generate_series(1, {MATCHES}) n;
                 insert into seat (client_id, deployment_id, user_id, stage_id, venue_id)
                   select {past} + 20000 + {each} * n + m, {deployment}, 1, 1, {past} + n from generate_series(1, {MATCHES}) n, generate_series(1, {each}) m"
            ),
        )
        .await;
    assert_eq!(lobbies().await, Some(1), "the lobby is behind the matches");
    watch_changes(&studio, &["seat", "venue"], "seat").await;
    let deleted = studio.developer("delete-deployment", json!({"id": deployment})).await;
    assert_eq!(deleted["deleted"], true);
    let staying = "select count(*) from $schema.seat where told is distinct from 'GONE'";
    eventually("some are sent home", || async {
        (count(&studio, staying).await < PLAYERS).then_some(())
    })
    .await;
    studio.service.kill();
    let left = count(&studio, staying).await;
    assert!(left > 0, "the service was killed too late");
    assert!(left < PLAYERS, "those who were sent home stay so");
    studio.service.restart().await;
    let query = ["seat", "venue", "cell", "runtime", "event"]
        .map(|table| format!("select '{table}' from $schema.{table}"))
        .join(" union all ");
    eventually("everybody and everything is gone", || async {
        count(&studio, &format!("select count(*) from ({query}) as left_over"))
            .await
            .eq(&0)
            .then_some(())
    })
    .await;
    let most = most_changes(&studio).await;
    assert!((2..=STEPS_MAX).contains(&most), "a transaction changed {most} rows");
    drop(studio.service);
    studio.durable.stop().await;
}

async fn count(studio: &Studio, query: &str) -> i64 {
    let rows: Vec<(i64,)> = studio.durable.query(query).await;
    rows.iter().map(|(count,)| count).sum()
}

/// Rows that were changed by the transaction that changed the most of those that were watched.
async fn most_changes(studio: &Studio) -> i64 {
    let changes: Vec<(i64,)> = studio
        .durable
        .query("select coalesce(max(changed), 0)::bigint from (select sum(rows) as changed from $schema.changes group by tx) as txs")
        .await;
    changes.iter().map(|(changed,)| *changed).max().unwrap_or(0)
}

/// Lets the database write down how many rows of these tables each transaction changes, and take its time with one of them
/// when there are several, so that there is a middle.
async fn watch_changes(studio: &Studio, tables: &[&str], slow: &str) {
    let mut script = format!(
        "create table changes (tx bigint not null, rows bigint not null);
        create function note_changes() returns trigger language plpgsql as $$ begin
          insert into changes select txid_current(), count(*) from before_it having count(*) > 0;
          if tg_table_name = '{slow}' and (select count(*) from before_it) > 1 then perform pg_sleep(0.5); end if;
          return null; end $$;"
    );
    for table in tables {
        for change in ["update", "delete"] {
            script += &format!(
                "create trigger note_{change} after {change} on {table} referencing old table as before_it \
                 for each statement execute function note_changes();"
            );
        }
    }
    studio.durable.execute_everywhere(&script).await;
}
