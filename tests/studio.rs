//! A studio on an installation: tenant, developer, project, stage, and a version that it deploys.

use omgservers_protocol::client::Client;
use omgservers_protocol::config::{DeploymentConfig, VersionConfig};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{DeploymentId, ProjectId, StageId, TenantId, UserId, VersionId};
use omgservers_protocol::support;
use omgservers_protocol::text::Text;

use crate::platform::{Installation, text};

pub struct Studio {
    pub tenant: TenantId,
    pub project: ProjectId,
    pub stage: StageId,
    pub user: UserId,
    pub password: String,
    /// Presents the developer's token.
    pub developer: Client,
}

/// A game with a duel for two and an arena for one to eight.
pub fn game_config() -> VersionConfig {
    let mode = |name: &str, min: u32, max: u32| {
        serde_json::json!({"name": name, "min_players": min, "max_players": max,
            "groups": [{"name": "players", "min_players": min, "max_players": max}]})
    };
    let config = serde_json::json!({"modes": [mode("duel", 2, 2), mode("arena", 1, 8)], "user_data": {"map": "small"}});
    serde_json::from_value(config).expect("a version config")
}

impl Studio {
    /// Made by support, as a new customer would be.
    pub async fn open(installation: &Installation) -> Self {
        let support = installation.support().await;
        let tenant = support.send(&support::CreateTenant {}).await.expect("a tenant").id;
        let (user, password, developer) = Self::hire(installation).await;
        let call = support::CreateTenantPermissions {
            tenant: id(tenant),
            user_id: user,
            permissions_to_create: vec![
                support::TenantPermission::ProjectManager,
                support::TenantPermission::TenantViewer,
            ],
        };
        support.send(&call).await.expect("permissions");
        let made = developer
            .send(&dev::CreateProject { tenant: id(tenant) })
            .await
            .expect("a project");
        Self {
            tenant,
            project: made.project_id,
            stage: made.stage_id,
            user,
            password,
            developer,
        }
    }

    /// A developer without any permission.
    pub async fn hire(installation: &Installation) -> (UserId, String, Client) {
        let support = installation.support().await;
        let made = support.send(&support::CreateDeveloper {}).await.expect("a developer");
        let call = dev::CreateToken {
            user_id: id(made.user_id),
            password: text(&made.password),
        };
        let token = installation
            .client()
            .send(&call)
            .await
            .expect("the developer logs in")
            .raw_token;
        (made.user_id, made.password, installation.client().with_token(token))
    }

    pub async fn version(&self, config: VersionConfig, image: &str) -> VersionId {
        let call = dev::CreateVersion {
            tenant: id(self.tenant),
            project: id(self.project),
            config,
        };
        let version = self.developer.send(&call).await.expect("a version").version_id;
        let call = dev::CreateImage {
            tenant: id(self.tenant),
            project: id(self.project),
            version,
            qualifier: dev::ImageQualifier::Universal,
            image: image.to_owned(),
        };
        assert!(self.developer.send(&call).await.expect("an image").created);
        version
    }

    pub async fn deploy(&self, version: VersionId, config: Option<DeploymentConfig>) -> DeploymentId {
        let call = dev::DeployVersion {
            tenant: id(self.tenant),
            project: id(self.project),
            stage: id(self.stage),
            version_id: version,
            config,
        };
        self.developer.send(&call).await.expect("a deployment").deployment_id
    }

    pub async fn deployment(&self, deployment: DeploymentId) -> dev::DeploymentDetails {
        let call = dev::GetDeploymentDetails {
            tenant: id(self.tenant),
            deployment_id: deployment,
        };
        self.developer.send(&call).await.expect("details").details
    }

    /// Lobbies and matches of the deployment in this state.
    pub async fn venues(&self, deployment: DeploymentId, qualifier: &str, state: &str) -> Vec<dev::VenueStatus> {
        let details = self.deployment(deployment).await;
        details
            .venues
            .into_iter()
            .filter(|venue| venue.qualifier == qualifier && venue.state == state)
            .collect()
    }
}

/// An id where a name would do too.
pub(crate) fn id(id: impl std::fmt::Display) -> Text {
    text(&id.to_string())
}
