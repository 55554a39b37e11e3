-- Every queue has a bound, in rows and in bytes: how large a body is stands beside it, so that nobody reads it to count.

alter table client_message add column bytes integer not null default 0;
alter table client_outgoing add column bytes integer not null default 0;
alter table runtime_command add column bytes integer not null default 0;

-- Set while messages of the client wait because the runtime's queue is full.
alter table runtime_assignment add column waiting_since timestamptz;
create index runtime_assignment_waiting on runtime_assignment (runtime_id, waiting_since) where waiting_since is not null;

-- Clients of this player that may be living, the newest last.
alter table player add column clients bigint[] not null default '{}';
