//! Details of entities: a title, and a table for everything that belongs to them.

use omgservers_protocol::developer::{
    Alias, DeploymentDetails, DeploymentFailure, Details, ProjectDetails, StageDetails, TenantDetails, VersionDetails,
};

use super::Reply;
use super::rows::names;
use crate::table;

impl Reply for Details<TenantDetails> {
    fn text(&self) -> String {
        let TenantDetails {
            tenant,
            permissions,
            projects,
        } = &self.details;
        [
            title("Tenant", tenant.id, &tenant.aliases, &tenant.created),
            table::of(projects),
            table::of(permissions),
        ]
        .join("\n\n")
    }
}

impl Reply for Details<ProjectDetails> {
    fn text(&self) -> String {
        let ProjectDetails {
            project,
            permissions,
            stages,
            versions,
        } = &self.details;
        [
            title("Project", project.id, &project.aliases, &project.created),
            table::of(stages),
            table::of(versions),
            table::of(permissions),
        ]
        .join("\n\n")
    }
}

impl Reply for Details<StageDetails> {
    fn text(&self) -> String {
        let StageDetails {
            stage,
            permissions,
            deployments,
            maintenance,
        } = &self.details;
        let closed = maintenance
            .as_ref()
            .map(|closed| format!("Closed for new players since {}: {}", closed.since, closed.message));
        let parts = [
            Some(title("Stage", stage.id, &stage.aliases, &stage.created)),
            closed,
            Some(table::of(deployments)),
            Some(table::of(permissions)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }
}

impl Reply for Details<VersionDetails> {
    fn text(&self) -> String {
        let version = &self.details.version;
        [
            title("Version", version.id, &[], &version.created),
            table::of(&self.details.images),
        ]
        .join("\n\n")
    }
}

impl Reply for Details<DeploymentDetails> {
    fn text(&self) -> String {
        let DeploymentDetails {
            deployment,
            matchmaker_refs,
            venues,
            failure,
            ..
        } = &self.details;
        let of_version = format!("of version {} on stage {}", deployment.version_id, deployment.stage_id);
        let mut parts = vec![
            format!(
                "Deployment {} {of_version}, created {}",
                deployment.id, deployment.created
            ),
            table::of(venues),
            table::of(matchmaker_refs),
        ];
        if let Some(failure) = failure {
            let times = if failure.failures == 1 {
                "once"
            } else {
                "again and again"
            };
            let DeploymentFailure { reason, retry_at, .. } = failure;
            parts.insert(
                1,
                format!("It failed {times}: {reason}\nThe next try is at {retry_at}."),
            );
        }
        parts.join("\n\n")
    }
}

fn title(kind: &str, id: impl std::fmt::Display, aliases: &[Alias], created: &str) -> String {
    match names(aliases).as_str() {
        "" => format!("{kind} {id}, created {created}"),
        names => format!("{kind} {id} ({names}), created {created}"),
    }
}
