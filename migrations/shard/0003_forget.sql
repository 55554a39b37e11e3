-- What is deleted takes along what lies in other shards: profiles of players, keys of programs.

create index api_key_of_tenant on api_key (tenant_id);
create index player_of_stage on player (stage_id);

-- Whether the players of a deleted stage are forgotten in every shard.
alter table stage add column players_forgotten boolean not null default false;
create index stage_unforgotten on stage (tenant_id, id) where deleted is not null and not players_forgotten;
