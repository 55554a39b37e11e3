-- Whose tokens are refused though they have not expired: every instance holds the whole of it in memory.

create table revocation (
    -- A user or an API key.
    subject bigint primary key,
    -- Tokens of an older epoch are refused; the greatest of all refuses every token.
    epoch bigint not null,
    changed timestamptz not null default clock_timestamp(),
    -- When the last token that it is about has expired.
    until timestamptz not null
);
create index revocation_changed on revocation (changed);
