-- What a studio is run by, day by day: keys, variables, quotas, usage, archives, the audit log, runs on a developer's
-- own machine. And indexes that keep a long history from slowing down the present.

-- Tokens of an older epoch are refused: it grows when the password changes.
alter table account add column epoch bigint not null default 0;
create index account_deleted on account (deleted) where deleted is not null;

-- By user_id: keys of programs that act for a developer.
create table api_key (
    id bigint primary key,
    user_id bigint not null,
    tenant_id bigint not null,
    project_id bigint,
    name text not null,
    scopes text[] not null,
    secret_hash text not null,
    created timestamptz not null default now(),
    expires timestamptz not null
);
create index api_key_of_user on api_key (user_id, id);
create index api_key_expires on api_key (expires);

-- Null is no limit.
alter table tenant
    add column quota_runtimes integer,
    add column quota_cpu integer,
    add column quota_memory integer,
    add column quota_players integer;

-- Set while the stage is closed for new players.
alter table stage
    add column maintenance text,
    add column maintenance_since timestamptz;

-- By tenant_id: environment variables of a stage's runtimes. A secret is sealed with the installation's key.
create table stage_variable (
    tenant_id bigint not null,
    stage_id bigint not null,
    name text not null,
    value text,
    sealed bytea,
    modified timestamptz not null default now(),
    constraint stage_variable_pkey primary key (stage_id, name),
    constraint stage_variable_stage foreign key (tenant_id, stage_id) references stage (tenant_id, id) on delete cascade,
    constraint stage_variable_value check ((value is null) <> (sealed is null))
);

-- By tenant_id: what the images of a version are to be built from.
create table files_archive (
    id bigint primary key,
    tenant_id bigint not null,
    version_id bigint not null,
    archive bytea not null,
    bytes bigint not null,
    files integer not null,
    sha256 text not null,
    created timestamptz not null default now(),
    constraint files_archive_version foreign key (tenant_id, version_id) references version (tenant_id, id) on delete cascade
);
alter table files_archive alter column archive set storage external; -- It is compressed already.
create index files_archive_of_version on files_archive (version_id, id);

-- By tenant_id: what was used on a day (UTC). `slot` is the newest interval that is counted in, so that none counts twice.
create table usage (
    tenant_id bigint not null,
    day date not null,
    slot bigint not null,
    runtime_seconds bigint not null default 0,
    -- Hundredths of a core times seconds.
    cpu_seconds bigint not null default 0,
    memory_mb_seconds bigint not null default 0,
    player_seconds bigint not null default 0,
    runtimes_max integer not null default 0,
    players_max integer not null default 0,
    constraint usage_pkey primary key (tenant_id, day)
);

-- In the shard of what was changed, written in the same transaction.
create table audit (
    id bigint primary key,
    created timestamptz not null default now(),
    user_id bigint not null,
    role text not null,
    api_key_id bigint,
    operation text not null,
    tenant_id bigint,
    target text,
    detail text
);
create index audit_of_tenant on audit (tenant_id, id);
create index audit_created on audit (created);

-- A deployment has one matchmaker; without it no match is made.
alter table cell add column has_matchmaker boolean not null default true;

-- By tenant_id: a developer's machine on which a stage's runtimes run for a while.
create table local_run (
    id bigint primary key,
    tenant_id bigint not null,
    stage_id bigint not null,
    user_id bigint not null,
    until timestamptz not null,
    created timestamptz not null default now(),
    constraint local_run_stage foreign key (tenant_id, stage_id) references stage (tenant_id, id) on delete cascade,
    constraint local_run_once unique (stage_id)
);
create table local_placement (
    runtime_id bigint primary key,
    run_id bigint not null
);
create index local_placement_of_run on local_placement (run_id);
alter table runtime add column run_id bigint;

-- Whose a placement is, for quotas and usage.
alter table placement add column tenant_id bigint not null default 0;

create index client_of_tenant on client (tenant_id) where deleted is null;

-- The living of a stage, project or tenant, whatever its history.
create index deployment_alive on deployment (stage_id, id) where deleted is null;
create index deployment_living on deployment (tenant_id) where deleted is null or draining;
create index deployment_unsynced on deployment (tenant_id, id)
    where cell_state <> case when deleted is null then 'ACTIVE' when draining then 'DRAINING' else 'CLOSING' end;
create index deployment_of_version on deployment (version_id);
create index project_alive on project (tenant_id, id) where deleted is null;
create index stage_alive on stage (project_id, id) where deleted is null;
create index version_alive on version (project_id, id) where deleted is null;
create index image_of_version on image (tenant_id, version_id);

-- What is deleted waits a while and goes for good.
create index project_deleted on project (deleted) where deleted is not null;
create index stage_deleted on stage (deleted) where deleted is not null;
create index version_deleted on version (deleted) where deleted is not null;
create index deployment_deleted on deployment (deleted) where deleted is not null;
create index tenant_deleted on tenant (deleted) where deleted is not null;

-- In which tenants somebody may do something.
create index tenant_permission_of_user on tenant_permission (user_id);
create index project_permission_of_user on project_permission (user_id);
create index stage_permission_of_user on stage_permission (user_id);
