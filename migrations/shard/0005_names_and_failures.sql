-- The name of something deleted leads there for as long as that is remembered, and may be given to something else meanwhile.
alter table alias add column deleted timestamptz;
alter table alias drop constraint alias_taken;
create unique index alias_taken on alias (qualifier, shard_key, uniqueness_group, value) where deleted is null;
create index alias_of_value on alias (qualifier, shard_key, uniqueness_group, value);
create index alias_deleted on alias (deleted) where deleted is not null;

-- A player's account that nobody has looked at yet: one that was never played with goes after a while.
alter table account add column unused boolean not null default false;
create index account_unused on account (created) where unused;

-- What failed is shown to admins.
create index event_failed on event (id) where attempts > 0;
