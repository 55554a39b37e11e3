//! What an admin does.

use clap::Subcommand;
use omgservers_protocol::text::Text;

use super::word::text;
use super::{Listing, Login};

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Admin {
    #[command(flatten)]
    Login(Login),
    /// Tell in which shard the entities of a key are
    CalculateShard {
        /// Such as the id of a tenant
        shard_key: String,
    },
    /// Take a new id from the installation's generator
    GenerateId,
    /// Hash a text as passwords of people are stored
    BcryptHash {
        /// At most 72 bytes; `-` reads it from stdin
        value: String,
    },
    /// Try whether a Docker engine answers the service
    PingDockerHost {
        /// Such as unix:///var/run/docker.sock
        docker_daemon_uri: String,
    },
    /// Make a new password for somebody who lost theirs
    ResetPassword {
        /// Id or alias of the user
        #[arg(value_parser = text)]
        user: Text,
    },
    /// List the shards with their sizes
    ListShards(Listing),
    /// List the processes of the service
    ListInstances(Listing),
    /// List the machines that run game servers
    ListHosts(Listing),
    /// List the work that failed and is tried again
    ListFailedJobs(Listing),
    /// List everybody with a password
    ListUsers {
        /// Only those of one role, such as developer
        #[arg(long, value_parser = text)]
        role: Option<Text>,
        #[command(flatten)]
        listing: Listing,
    },
    /// List who changed what, the newest first
    ListAuditRecords(Listing),
}
