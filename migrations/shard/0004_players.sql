-- The players of a deployment, page by page.
create index seat_by_deployment on seat (deployment_id, client_id);
drop index seat_of_deployment;
