//! What commands are about: a tenant, a project, a stage … and which part of a list.

use clap::Args;
use omgservers_protocol::call::Paging;
use omgservers_protocol::id::{DeploymentId, VersionId};
use omgservers_protocol::text::Text;

use super::word::{id, text};

#[derive(Args)]
pub(crate) struct Tenant {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
}

#[derive(Args)]
pub(crate) struct Project {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id or name of the project
    #[arg(value_parser = text)]
    pub(crate) project: Text,
}

#[derive(Args)]
pub(crate) struct Stage {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id or name of the project
    #[arg(value_parser = text)]
    pub(crate) project: Text,
    /// Id or name of the stage
    #[arg(value_parser = text)]
    pub(crate) stage: Text,
}

#[derive(Args)]
pub(crate) struct Version {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id of the version
    #[arg(value_parser = id::<VersionId>)]
    pub(crate) version: VersionId,
}

#[derive(Args)]
pub(crate) struct Deployment {
    /// Id or name of the tenant
    #[arg(value_parser = text)]
    pub(crate) tenant: Text,
    /// Id of the deployment
    #[arg(value_parser = id::<DeploymentId>)]
    pub(crate) deployment: DeploymentId,
}

/// What is deleted with everything in it.
#[derive(Args)]
pub(crate) struct Deletion<P: Args> {
    #[command(flatten)]
    pub(crate) of: P,
    /// Do not ask on a terminal
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Which part of a list is wanted.
#[derive(Args)]
pub(crate) struct Listing {
    /// How many rows at most, 1 to 500 [default: 50]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=500))]
    page_size: Option<u32>,
    /// Where to go on, as the page before said
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// All pages
    #[arg(long)]
    pub(crate) all: bool,
}

impl Listing {
    pub(crate) fn paging(&self) -> Paging {
        Paging {
            page_size: self.page_size,
            page_token: self.page_token.clone(),
        }
    }
}
