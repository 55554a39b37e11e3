-- Schema `system` of the first database: what an installation knows of itself.

create table installation (
    only_row boolean primary key default true constraint installation_one check (only_row),
    -- Tells its containers from those of another installation on the same engine.
    name text not null default replace(gen_random_uuid()::text, '-', ''),
    shard_count integer not null constraint installation_shards check (shard_count between 1 and 32767),
    created timestamptz not null default now()
);

-- Where each shard lives. `database` is the number of a configured database.
create table shard (
    shard integer primary key,
    database integer not null
);

-- Living instances; `node` is their part of ids.
create table instance (
    node integer primary key constraint instance_node check (node between 0 and 1023),
    holder text not null,
    until timestamptz not null,
    -- The newest millisecond that ids of this node may carry: the next holder starts after it.
    clock_ms bigint not null
);
