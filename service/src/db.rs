//! The one way to the database: from a shard key to a transaction in the right schema of the right database. No other
//! code names a schema or a database.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use omgservers_protocol::admin;
use omgservers_protocol::call::{Page, Paging};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, FromRow, Postgres, Transaction};

use crate::entity::page::Window;
use crate::error::Result;
use crate::wake::{Hub, Job, News};

pub static SHARD_MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations/shard");
pub static SYSTEM_MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations/system");

/// First half of the advisory lock's name; the second is the shard. A move takes it exclusively.
const FENCE: i32 = 0x4f4d_4753;
/// First half of the lock's name that is held while a schema is brought up to date.
const FENCE_SCHEMA: i32 = 0x4f4d_4754;
/// Pools per database: each connection then sees few shards, which keeps its statement cache small.
const SUB_POOLS: usize = 8;
/// Prepared statements that a connection remembers: those of its shards, and one per shard for each of the single reads.
const STATEMENTS: usize = 256;
/// Connections besides the sub-pools: system schema, notices to and from other instances.
const EXTRA_CONNECTIONS: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(u16);

impl Shard {
    pub fn index(self) -> u16 {
        self.0
    }

    fn schema(self) -> String {
        format!("shard_{:05}", self.0)
    }
}

/// The shard of a key: CRC-16/ARC of its text, modulo the number of shards.
pub fn shard_of(key: &str, shard_count: u16) -> Shard {
    const CRC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_ARC);
    Shard(CRC.checksum(key.as_bytes()) % shard_count)
}

/// Whether and how schemas are brought up to date.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub enabled: bool,
    /// Schemas at the same time.
    pub concurrency: u32,
}

struct Database {
    pools: Vec<PgPool>,
    system: PgPool,
}

pub struct Db {
    databases: Vec<Database>,
    /// For each shard its database.
    index: Vec<usize>,
    /// For each shard the statements that open a transaction in it: one to keep, one that may be lost.
    openings: Vec<[Arc<str>; 2]>,
    hub: Arc<Hub>,
}

impl Db {
    /// Connects, migrates every schema, and reads the index. `urls` are the databases in their order.
    pub async fn open(
        urls: &[String],
        shard_count: u16,
        max_connections: u32,
        migration: Migration,
        hub: Arc<Hub>,
    ) -> anyhow::Result<Self> {
        let options = urls
            .iter()
            .map(|url| url.parse::<PgConnectOptions>().context("the database URL is not valid"))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let sub_pools = SUB_POOLS.min(usize::from(shard_count).div_ceil(urls.len()));
        let per_pool = ((max_connections - EXTRA_CONNECTIONS) / u32::try_from(sub_pools)?).max(1);
        let bound = per_pool * u32::try_from(sub_pools)? + EXTRA_CONNECTIONS;

        let mut first = connect(&options[0]).await?;
        migrate(&mut first, "system", &SYSTEM_MIGRATIONS, migration.enabled).await?;
        let index = read_index(&mut first, shard_count, urls.len()).await?;
        first.close().await.ok();
        for (number, options) in options.iter().enumerate() {
            let mut connection = connect(options).await?;
            check_limit(&mut connection, number, bound).await?;
            connection.close().await.ok();
            let shards = (0..shard_count).filter(|shard| index[usize::from(*shard)] == number);
            let lanes = migration.concurrency.min(bound) as usize;
            migrate_shards(
                options,
                &shards.map(Shard).collect::<Vec<_>>(),
                lanes,
                migration.enabled,
            )
            .await?;
        }

        let databases = options
            .into_iter()
            .map(|options| {
                let pool = |max: u32| {
                    PgPoolOptions::new()
                        .max_connections(max)
                        .acquire_timeout(Duration::from_secs(10))
                        .idle_timeout(Duration::from_secs(300))
                        .test_before_acquire(false)
                };
                let options = options
                    .application_name("omgservers-service")
                    .statement_cache_capacity(STATEMENTS);
                let pools = (0..sub_pools)
                    .map(|_| pool(per_pool).connect_lazy_with(options.clone()))
                    .collect();
                let system = pool(EXTRA_CONNECTIONS).connect_lazy_with(options.options([("search_path", "system")]));
                Database { pools, system }
            })
            .collect();
        let openings = (0..shard_count)
            .map(|shard| {
                let schema = Shard(shard).schema();
                let kept = format!(
                    "BEGIN; SET LOCAL search_path TO {schema}; SET LOCAL lock_timeout TO '5s'; \
                     SELECT pg_advisory_xact_lock_shared({FENCE}, {shard})"
                );
                let relaxed = format!("{kept}; SET LOCAL synchronous_commit TO off");
                [kept.into(), relaxed.into()]
            })
            .collect();
        tracing::info!(
            databases = urls.len(),
            shards = shard_count,
            connections.max = bound,
            "the database is open"
        );
        Ok(Self {
            databases,
            index,
            openings,
            hub,
        })
    }

    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn databases(&self) -> usize {
        self.databases.len()
    }

    /// The pool that reaches schema `system` (of the first database) or sends and hears notices (of any).
    pub fn system(&self, database: usize) -> &PgPool {
        &self.databases[database].system
    }

    pub fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        let count = u16::try_from(self.index.len()).expect("there are at most 32767 shards");
        (0..count).map(Shard)
    }

    /// The shard of an entity that is its own shard key.
    pub fn shard_of(&self, key: impl Into<i64>) -> Shard {
        self.shard_of_text(&key.into().to_string())
    }

    /// One shard by its number, if there is such a one.
    pub fn shard(&self, index: u16) -> Option<Shard> {
        (usize::from(index) < self.index.len()).then_some(Shard(index))
    }

    /// The shard of any text.
    pub fn shard_of_text(&self, key: &str) -> Shard {
        shard_of(
            key,
            u16::try_from(self.index.len()).expect("there are at most 32767 shards"),
        )
    }

    pub fn database_of(&self, shard: Shard) -> usize {
        self.index[usize::from(shard.0)]
    }

    /// Tells whoever waits for news, on every instance.
    pub fn tell(&self, news: News) {
        let database = match news {
            News::Client(id) => self.database_of(self.shard_of(id.get())),
            News::Runtime(id) => self.database_of(self.shard_of(id.get())),
            News::Revoked | News::LocalRun(_) => 0,
        };
        self.hub.tell(database, news);
    }

    /// A transaction in the shard of this key.
    pub async fn begin(&self, key: impl Into<i64>) -> Result<Tx> {
        self.begin_in(self.shard_of(key)).await
    }

    /// A transaction in this shard.
    pub async fn begin_in(&self, shard: Shard) -> Result<Tx> {
        self.open_in(shard, &self.openings[usize::from(shard.0)][0]).await
    }

    /// The same for what may be lost if the server dies in the next moment, because it is then simply done again: nobody
    /// waits for the disk.
    pub async fn begin_relaxed(&self, shard: Shard) -> Result<Tx> {
        self.open_in(shard, &self.openings[usize::from(shard.0)][1]).await
    }

    /// The row of this id in one round trip, for what is read all the time: no transaction, and no fence, which a single
    /// read does without. While a shard moves, its rows stay as they are; then the statement finds no table.
    pub async fn read_row<R>(&self, columns: &'static str, table: &'static str, id: i64) -> Result<Option<R>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let shard = self.shard_of(id);
        let query: Arc<str> = format!("select {columns} from {}.{table} where id = $1", shard.schema()).into();
        let pool = self.pool(shard);
        let mut dead = Dead::of(pool);
        loop {
            let reading = sqlx::query_as(AssertSqlSafe(query.clone()))
                .bind(id)
                .fetch_optional(pool);
            match reading.await {
                Ok(row) => return Ok(row),
                Err(cause) => dead.excuse(cause)?,
            }
        }
    }

    fn pool(&self, shard: Shard) -> &PgPool {
        let pools = &self.databases[self.database_of(shard)].pools;
        &pools[usize::from(shard.0) % pools.len()]
    }

    async fn open_in(&self, shard: Shard, opening: &Arc<str>) -> Result<Tx> {
        let pool = self.pool(shard);
        let mut dead = Dead::of(pool);
        let inner = loop {
            match pool.begin_with(AssertSqlSafe(opening.clone())).await {
                Ok(inner) => break inner,
                Err(cause) => dead.excuse(cause)?,
            }
        };
        Ok(Tx {
            inner,
            shard,
            database: self.database_of(shard),
            hub: self.hub.clone(),
            jobs: Vec::new(),
            news: Vec::new(),
        })
    }

    /// Where the shards are and how large.
    pub async fn list_shards(&self, paging: &Paging) -> Result<Page<admin::Shard>> {
        let window = Window::new(paging)?;
        let first = u16::try_from(window.after().saturating_add(1).max(0)).unwrap_or(u16::MAX);
        let last = first.saturating_add(u16::try_from(window.limit()).unwrap_or(u16::MAX));
        let shown: Vec<Shard> = (first..last).map_while(|index| self.shard(index)).collect();
        let mut sizes: HashMap<String, i64> = HashMap::new();
        for database in 0..self.databases.len() {
            let schemas: Vec<String> = shown
                .iter()
                .filter(|shard| self.database_of(**shard) == database)
                .map(|shard| shard.schema())
                .collect();
            let rows: Vec<(String, i64)> = sqlx::query_as(
                "select nspname::text, sum(pg_total_relation_size(pg_class.oid))::bigint from pg_class \
                 join pg_namespace on pg_namespace.oid = relnamespace where relkind = 'r' and nspname = any($1) group by nspname",
            )
            .bind(schemas)
            .fetch_all(self.system(database))
            .await?;
            sizes.extend(rows);
        }
        Ok(window.page(
            shown,
            |shard| i64::from(shard.index()),
            |shard| admin::Shard {
                shard_index: shard.index(),
                database: u32::try_from(self.database_of(shard)).unwrap_or(u32::MAX),
                bytes: sizes.get(&shard.schema()).copied().unwrap_or(0),
            },
        ))
    }

    pub async fn close(&self) {
        for database in &self.databases {
            for pool in &database.pools {
                pool.close().await;
            }
            database.system.close().await;
        }
    }
}

/// Pooled connections whose server was restarted, each of which may fail once. For what changes nothing.
struct Dead(u32);

impl Dead {
    fn of(pool: &PgPool) -> Self {
        Self(pool.size())
    }

    /// Passes if it is worth another try.
    fn excuse(&mut self, cause: sqlx::Error) -> Result<()> {
        if self.0 == 0 || !is_connection_loss(&cause) {
            return Err(cause.into());
        }
        self.0 -= 1;
        Ok(())
    }
}

fn is_connection_loss(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code.starts_with("57P")),
        _ => false,
    }
}

/// A transaction in one shard. What it announces is told after its commit.
pub struct Tx {
    inner: Transaction<'static, Postgres>,
    shard: Shard,
    database: usize,
    hub: Arc<Hub>,
    jobs: Vec<Job>,
    news: Vec<News>,
}

impl Tx {
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// Hints at a job once this is committed.
    pub fn hint(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Tells whoever waits once this is committed.
    pub fn tell(&mut self, news: News) {
        self.news.push(news);
    }

    pub async fn commit(self) -> Result<()> {
        self.inner.commit().await?;
        for job in self.jobs {
            self.hub.hint(job);
        }
        for news in self.news {
            self.hub.tell(self.database, news);
        }
        Ok(())
    }
}

impl Deref for Tx {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        &self.inner
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.inner
    }
}

/// Connects, waiting a while for a server that is just starting.
async fn connect(options: &PgConnectOptions) -> anyhow::Result<PgConnection> {
    let mut last = None;
    for attempt in 0..30 {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        match tokio::time::timeout(Duration::from_secs(10), PgConnection::connect_with(options)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(cause @ (sqlx::Error::Io(_) | sqlx::Error::Database(_)))) => last = Some(cause),
            Ok(Err(cause)) => return Err(cause).context("cannot connect to the database"),
            Err(_) => {}
        }
        if last.as_ref().is_some_and(|cause| matches!(cause, sqlx::Error::Database(error) if !error.code().is_some_and(|code| code.starts_with("57P")))) {
            break;
        }
    }
    match last {
        Some(cause) => Err(cause).context("cannot connect to the database"),
        None => bail!("the database did not answer within 10 s"),
    }
}

/// Brings the shards of one database up to date, each of the lanes on a connection of its own.
async fn migrate_shards(
    options: &PgConnectOptions,
    shards: &[Shard],
    lanes: usize,
    enabled: bool,
) -> anyhow::Result<()> {
    let lanes = lanes.clamp(1, shards.len().max(1));
    let migrating = (0..lanes).map(async |lane| {
        let mut connection = connect(options).await?;
        for shard in shards.iter().skip(lane).step_by(lanes) {
            migrate(&mut connection, &shard.schema(), &SHARD_MIGRATIONS, enabled).await?;
        }
        connection.close().await.ok();
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(migrating).await?;
    Ok(())
}

/// Brings one schema up to date, or makes sure that it is.
async fn migrate(
    connection: &mut PgConnection,
    schema: &str,
    migrations: &'static sqlx::migrate::Migrator,
    enabled: bool,
) -> anyhow::Result<()> {
    if !enabled {
        return check_schema(connection, schema, migrations).await;
    }
    // Two instances that start at once would both try to create the schema, and then its tables. The migrator's own lock is
    // one for the whole database: schemas would wait for each other.
    let lock = format!("hashtext('{schema}')");
    sqlx::raw_sql(AssertSqlSafe(format!(
        "select pg_advisory_lock({FENCE_SCHEMA}, {lock}); create schema if not exists {schema}; set search_path to {schema}"
    )))
    .execute(&mut *connection)
    .await?;
    let unlocked = sqlx::migrate::Migrator {
        migrations: std::borrow::Cow::Borrowed(&migrations.migrations),
        locking: false,
        ..sqlx::migrate::Migrator::DEFAULT
    };
    let migrated = unlocked.run_direct(None, &mut *connection, false).await;
    sqlx::raw_sql(AssertSqlSafe(format!(
        "select pg_advisory_unlock({FENCE_SCHEMA}, {lock})"
    )))
    .execute(&mut *connection)
    .await?;
    migrated.with_context(|| format!("schema `{schema}` could not be migrated"))
}

/// Refuses a schema that somebody else should have brought up to date.
async fn check_schema(
    connection: &mut PgConnection,
    schema: &str,
    migrations: &sqlx::migrate::Migrator,
) -> anyhow::Result<()> {
    let query = format!("select version from {schema}._sqlx_migrations where success");
    let applied: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(query))
        .fetch_all(&mut *connection)
        .await
        .or_else(|cause| match cause.as_database_error().and_then(|error| error.code()) {
            Some(code) if code == "42P01" => Ok(Vec::new()),
            _ => Err(cause),
        })?;
    for migration in migrations.iter() {
        ensure!(
            applied.contains(&migration.version),
            "schema `{schema}` is not up to date (`{}` is missing): start once with \
             OMGSERVERS_INITIALIZATION_DATABASE_SCHEMA_ENABLED=true",
            migration.description
        );
    }
    Ok(())
}

/// Until the caller's transaction ends, whoever calls this for the same entity waits: what is counted before something is
/// added stays as counted.
pub async fn one_at_a_time(db: &mut PgConnection, entity: i64) -> Result<()> {
    sqlx::query("select pg_advisory_xact_lock($1)")
        .bind(entity)
        .execute(db)
        .await?;
    Ok(())
}

/// Reads where the shards are; the first start of an installation deals them out.
async fn read_index(connection: &mut PgConnection, shard_count: u16, databases: usize) -> anyhow::Result<Vec<usize>> {
    let mut tx = connection.begin().await?;
    sqlx::query("select pg_advisory_xact_lock($1)")
        .bind(i64::from(FENCE))
        .execute(&mut *tx)
        .await?;
    let stored: Option<i32> = sqlx::query_scalar("select shard_count from system.installation")
        .fetch_optional(&mut *tx)
        .await?;
    match stored {
        None => {
            sqlx::query("insert into system.installation (shard_count) values ($1)")
                .bind(i32::from(shard_count))
                .execute(&mut *tx)
                .await?;
            let dealt: (Vec<i32>, Vec<i32>) = (0..i32::from(shard_count))
                .map(|shard| {
                    (
                        shard,
                        shard % i32::try_from(databases).expect("there are few databases"),
                    )
                })
                .unzip();
            sqlx::query("insert into system.shard (shard, database) select * from unnest($1::int[], $2::int[])")
                .bind(dealt.0)
                .bind(dealt.1)
                .execute(&mut *tx)
                .await?;
        }
        Some(stored) if stored != i32::from(shard_count) => {
            bail!(
                "this installation has {stored} shards for life, but OMGSERVERS_SERVER_SHARD_COUNT says {shard_count}"
            )
        }
        Some(_) => {}
    }
    let rows: Vec<(i32, i32)> = sqlx::query_as("select shard, database from system.shard order by shard")
        .fetch_all(&mut *tx)
        .await?;
    tx.commit().await?;
    ensure!(
        rows.len() == usize::from(shard_count),
        "the index of shards is damaged: {} rows for {shard_count} shards",
        rows.len()
    );
    rows.into_iter()
        .map(|(shard, database)| {
            let number = usize::try_from(database)?;
            ensure!(
                number < databases,
                "shard {shard} is in database {database}, which is not configured"
            );
            Ok(number)
        })
        .collect()
}

/// Refuses a start that would exceed the server's connections.
async fn check_limit(connection: &mut PgConnection, number: usize, bound: u32) -> anyhow::Result<()> {
    let (max, reserved): (i32, i32) = sqlx::query_as(
        "select current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int",
    )
    .fetch_one(connection)
    .await?;
    let free = u32::try_from(max - reserved)?;
    ensure!(
        bound <= free,
        "this instance may use {bound} connections to database {number}, but the server allows {free} \
         (max_connections {max}, {reserved} reserved): lower OMGSERVERS_DATABASE_MAX_CONNECTIONS"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_to_the_shards_that_other_installations_give_them() {
        for (key, hash) in [
            ("0", 5120),
            ("1", 54465),
            ("245515657456648192", 7480),
            ("231077687903387648", 48540),
            ("a/b", 1996),
        ] {
            assert_eq!(shard_of(key, 32_767).index(), hash % 32_767, "{key}");
            assert_eq!(shard_of(key, 8).index(), hash % 8, "{key}");
        }
    }
}
