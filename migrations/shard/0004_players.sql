-- The players of a deployment, page by page.
create index seat_by_deployment on seat (deployment_id, client_id);
drop index seat_of_deployment;

-- The few who are no players.
create index account_of_role on account (role, id) where role <> 'player';

-- What is older than anybody wants to know.
create index usage_day on usage (day);
