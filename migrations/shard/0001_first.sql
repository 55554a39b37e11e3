-- One shard. Every table is found by the id that it is sharded by, which is said above it. Columns are listed in every
-- query, states are text, and no type lives in this schema, so that one prepared statement serves all shards.

-- By shard_key: 0 for tenants, users and pools, the tenant for its projects and stages.
create table alias (
    id bigint primary key,
    qualifier text not null,
    shard_key bigint not null,
    uniqueness_group bigint not null,
    entity_id bigint not null,
    value text not null,
    created timestamptz not null default now(),
    constraint alias_taken unique (qualifier, shard_key, uniqueness_group, value)
);
create index alias_entity on alias (entity_id);

-- By id: everybody who has a password.
create table account (
    id bigint primary key,
    role text not null,
    password_hash text not null,
    created timestamptz not null default now(),
    deleted timestamptz
);

-- By user_id.
create table player (
    id bigint primary key,
    user_id bigint not null,
    tenant_id bigint not null,
    stage_id bigint not null,
    profile json not null default '{}',
    created timestamptz not null default now(),
    constraint player_once unique (user_id, stage_id)
);

-- By id.
create table tenant (
    id bigint primary key,
    created timestamptz not null default now(),
    deleted timestamptz
);

-- By tenant_id, down to deployment.
create table tenant_permission (
    id bigint primary key,
    tenant_id bigint not null constraint tenant_permission_tenant references tenant on delete cascade,
    user_id bigint not null,
    permission text not null,
    created timestamptz not null default now(),
    constraint tenant_permission_once unique (tenant_id, user_id, permission)
);

create table project (
    id bigint primary key,
    tenant_id bigint not null constraint project_tenant references tenant on delete cascade,
    created timestamptz not null default now(),
    deleted timestamptz,
    constraint project_of_tenant unique (tenant_id, id)
);

create table project_permission (
    id bigint primary key,
    tenant_id bigint not null,
    project_id bigint not null,
    user_id bigint not null,
    permission text not null,
    created timestamptz not null default now(),
    constraint project_permission_project foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade,
    constraint project_permission_once unique (project_id, user_id, permission)
);

create table stage (
    id bigint primary key,
    tenant_id bigint not null,
    project_id bigint not null,
    created timestamptz not null default now(),
    deleted timestamptz,
    constraint stage_project foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade,
    constraint stage_of_tenant unique (tenant_id, id)
);

create table stage_permission (
    id bigint primary key,
    tenant_id bigint not null,
    stage_id bigint not null,
    user_id bigint not null,
    permission text not null,
    created timestamptz not null default now(),
    constraint stage_permission_stage foreign key (tenant_id, stage_id) references stage (tenant_id, id) on delete cascade,
    constraint stage_permission_once unique (stage_id, user_id, permission)
);

create table version (
    id bigint primary key,
    tenant_id bigint not null,
    project_id bigint not null,
    config json not null,
    created timestamptz not null default now(),
    deleted timestamptz,
    constraint version_project foreign key (tenant_id, project_id) references project (tenant_id, id) on delete cascade,
    constraint version_of_tenant unique (tenant_id, id)
);

create table image (
    id bigint primary key,
    tenant_id bigint not null,
    version_id bigint not null,
    qualifier text not null constraint image_qualifier check (qualifier in ('UNIVERSAL', 'LOBBY', 'MATCH')),
    image text not null,
    created timestamptz not null default now(),
    constraint image_version foreign key (tenant_id, version_id) references version (tenant_id, id) on delete cascade,
    constraint image_once unique (version_id, qualifier)
);

create table deployment (
    id bigint primary key,
    tenant_id bigint not null,
    stage_id bigint not null,
    version_id bigint not null,
    matchmaker_id bigint not null,
    config json not null,
    created timestamptz not null default now(),
    deleted timestamptz,
    -- Replaced by a newer one: its matches may end in peace.
    draining boolean not null default false,
    -- What the deployment's cell was last told.
    cell_state text not null default 'NONE' constraint deployment_cell_state
        check (cell_state in ('NONE', 'ACTIVE', 'DRAINING', 'CLOSING')),
    constraint deployment_stage foreign key (tenant_id, stage_id) references stage (tenant_id, id) on delete cascade,
    constraint deployment_version foreign key (tenant_id, version_id) references version (tenant_id, id) on delete cascade
);
create index deployment_of_stage on deployment (stage_id, id);

-- By deployment_id, down to seat: where the players of one deployment are.
create table cell (
    deployment_id bigint primary key,
    tenant_id bigint not null,
    project_id bigint not null,
    stage_id bigint not null,
    version_id bigint not null,
    matchmaker_id bigint not null,
    version_config json not null,
    config json not null,
    lobby_image text,
    match_image text,
    state text not null constraint cell_state check (state in ('ACTIVE', 'DRAINING', 'CLOSING')),
    -- Runtimes that never became ready, one after the other: the next start waits longer.
    failures integer not null default 0,
    retry_at timestamptz not null default now(),
    failure text,
    created timestamptz not null default now()
);

-- A lobby or a match.
create table venue (
    id bigint primary key,
    deployment_id bigint not null constraint venue_cell references cell on delete cascade,
    runtime_id bigint not null,
    qualifier text not null constraint venue_qualifier check (qualifier in ('LOBBY', 'MATCH')),
    mode text,
    state text not null constraint venue_state check (state in ('PENDING', 'OPEN', 'CLOSED', 'GONE')),
    reason text,
    progress text,
    created timestamptz not null default now(),
    empty_since timestamptz not null default now()
);
create index venue_of_deployment on venue (deployment_id);

-- A client of the deployment: in a venue, or waiting for a lobby; it may wish for a match besides.
create table seat (
    client_id bigint primary key,
    deployment_id bigint not null constraint seat_cell references cell on delete cascade,
    user_id bigint not null,
    stage_id bigint not null,
    venue_id bigint,
    group_name text,
    -- Grows with each move, so that an old move is never carried out after a newer one.
    generation bigint not null default 1,
    wanted_mode text,
    -- Place in the line: by arrival.
    line bigint generated by default as identity,
    -- The last status that the client was told.
    told text
);
create index seat_of_deployment on seat (deployment_id);
create index seat_of_venue on seat (venue_id);

-- By id.
create table client (
    id bigint primary key,
    user_id bigint not null,
    tenant_id bigint not null,
    stage_id bigint not null,
    deployment_id bigint not null,
    runtime_id bigint,
    -- Runtimes that have yet to hear that the client left.
    left_runtimes bigint[] not null default '{}',
    generation bigint not null default 0,
    message_seq bigint not null default 0,
    outgoing_seq bigint not null default 0,
    -- The newest of the client's own message numbers: a repeated request carries no newer one.
    outgoing_number bigint not null default -1,
    last_activity timestamptz not null default now(),
    created timestamptz not null default now(),
    deleted timestamptz
);
create index client_idle on client (last_activity) where deleted is null;
create index client_deleted on client (deleted) where deleted is not null;

-- By client_id: messages to the player, until acknowledged.
create table client_message (
    client_id bigint not null constraint client_message_client references client on delete cascade,
    seq bigint not null,
    id bigint not null,
    kind text not null,
    body json not null,
    constraint client_message_pkey primary key (client_id, seq)
);

-- By client_id: messages of the player, until the runtime's shard has them.
create table client_outgoing (
    client_id bigint not null constraint client_outgoing_client references client on delete cascade,
    seq bigint not null,
    data json not null,
    constraint client_outgoing_pkey primary key (client_id, seq)
);

-- By id.
create table runtime (
    id bigint primary key,
    tenant_id bigint not null,
    project_id bigint not null,
    stage_id bigint not null,
    version_id bigint not null,
    deployment_id bigint not null,
    venue_id bigint not null,
    qualifier text not null,
    config json not null,
    image text not null,
    cpu_limit integer not null,
    memory_limit integer not null,
    state text not null constraint runtime_state check (state in ('WANTED', 'PLACED', 'STARTED', 'READY', 'ENDED')),
    reason text,
    -- Counts starts; a container of an older one is not ours any more.
    generation bigint not null default 0,
    attempts integer not null default 0,
    pool_id bigint,
    host_id bigint,
    password_hash text,
    command_seq bigint not null default 0,
    last_activity timestamptz not null default now(),
    created timestamptz not null default now(),
    deleted timestamptz
);
create index runtime_idle on runtime (last_activity) where deleted is null;
create index runtime_of_host on runtime (host_id) where deleted is null;

-- By runtime_id: commands to the runtime, until acknowledged.
create table runtime_command (
    runtime_id bigint not null constraint runtime_command_runtime references runtime on delete cascade,
    seq bigint not null,
    id bigint not null,
    kind text not null,
    body json not null,
    created timestamptz not null default now(),
    constraint runtime_command_pkey primary key (runtime_id, seq)
);

-- By runtime_id: who is in it.
create table runtime_assignment (
    runtime_id bigint not null constraint runtime_assignment_runtime references runtime on delete cascade,
    client_id bigint not null,
    user_id bigint not null,
    stage_id bigint not null,
    generation bigint not null,
    -- The newest of the client's outgoing messages that became a command here.
    forwarded bigint not null default 0,
    constraint runtime_assignment_pkey primary key (runtime_id, client_id)
);

-- By pool_id.
create table host (
    id bigint primary key,
    pool_id bigint not null,
    uri text not null,
    cpu_count integer not null,
    memory_mb integer not null,
    max_containers integer not null,
    created timestamptz not null default now(),
    constraint host_once unique (pool_id, uri)
);

create table placement (
    runtime_id bigint primary key,
    pool_id bigint not null,
    host_id bigint not null constraint placement_host references host on delete cascade,
    deployment_id bigint not null,
    cpu_limit integer not null,
    memory_limit integer not null
);
create index placement_of_host on placement (host_id);

-- Hints that something about an entity of this shard changed, until somebody has looked.
create table event (
    id bigint generated always as identity primary key,
    kind text not null,
    key bigint not null,
    not_before timestamptz not null default now(),
    created timestamptz not null default now(),
    attempts integer not null default 0,
    error text
);
create index event_job on event (kind, key, id);
create index event_due on event (not_before);

-- Who is looking.
create table lease (
    kind text not null,
    key bigint not null,
    holder text not null,
    until timestamptz not null,
    constraint lease_pkey primary key (kind, key)
);
