//! The tenants' bridges on a Docker host: made when first needed, without traffic between the containers on them.

use bollard::{
    Docker,
    models::NetworkCreateRequest,
    query_parameters::{ListNetworksOptions, PruneNetworksOptions},
};
use tokio::sync::RwLockReadGuard;

use super::{Inner, START_ATTEMPTS};
use crate::host::{HostError, LABEL_INSTALLATION};

impl Inner {
    /// The id of the tenant's bridge, made when missing; it stays while the guard lives.
    pub(super) async fn bridge(
        &self,
        docker: &Docker,
        name: &str,
    ) -> Result<(String, RwLockReadGuard<'_, ()>), HostError> {
        for _ in 0..START_ATTEMPTS {
            let guard = self.bridges.read().await;
            if let Some(id) = self.find_bridge(docker, name).await? {
                return Ok((id, guard));
            }
            drop(guard);
            let _alone = self.bridges.write().await;
            if self.find_bridge(docker, name).await?.is_none() {
                self.create_bridge(docker, name).await?;
            }
        }
        Err(HostError::Refused(format!(
            "bridge `{name}` on host `{}` vanishes as often as it is made",
            self.address
        )))
    }

    async fn find_bridge(&self, docker: &Docker, name: &str) -> Result<Option<String>, HostError> {
        let mut filters = self.own();
        filters.insert("name".to_owned(), vec![format!("^{name}$")]);
        let found = docker
            .list_networks(Some(ListNetworksOptions { filters: Some(filters) }))
            .await;
        let found = found.map_err(|cause| self.failure("list networks", &cause))?;
        // Two instances may have made one each: all choose the same.
        Ok(found
            .into_iter()
            .filter(|there| there.name.as_deref() == Some(name))
            .filter_map(|there| there.id)
            .min())
    }

    async fn create_bridge(&self, docker: &Docker, name: &str) -> Result<(), HostError> {
        let request = || NetworkCreateRequest {
            name: name.to_owned(),
            driver: Some("bridge".to_owned()),
            options: Some([("com.docker.network.bridge.enable_icc".to_owned(), "false".to_owned())].into()),
            labels: Some([(LABEL_INSTALLATION.to_owned(), self.settings.installation.clone())].into()),
            ..Default::default()
        };
        let what = format!("create bridge `{name}`");
        let Err(cause) = docker.create_network(request()).await else {
            return Ok(());
        };
        match self.failure(&what, &cause) {
            // Addresses for bridges are few (about thirty by default): give back the unused ones and ask again.
            HostError::Full(_) => {
                self.prune_unguarded(docker).await?;
                let again = docker.create_network(request()).await;
                again.map(drop).map_err(|cause| self.failure(&what, &cause))
            }
            failure => Err(failure),
        }
    }

    pub(super) async fn prune_networks(&self) -> Result<usize, HostError> {
        let docker = self.docker()?;
        let _alone = self.bridges.write().await;
        self.prune_unguarded(&docker).await
    }

    async fn prune_unguarded(&self, docker: &Docker) -> Result<usize, HostError> {
        let options = PruneNetworksOptions {
            filters: Some(self.own()),
        };
        let pruned = docker.prune_networks(Some(options)).await;
        let pruned = pruned.map_err(|cause| self.failure("remove unused bridges", &cause))?;
        Ok(pruned.networks_deleted.unwrap_or_default().len())
    }
}
