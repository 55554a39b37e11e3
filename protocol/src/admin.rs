//! What an admin may ask.

use serde::{Deserialize, Serialize};

use crate::call::{RawToken, calls};
use crate::text::Text;

calls!("admin";
    CreateToken => RawToken, "create-token";
    GenerateId => GeneratedId, "generate-id";
);

/// Logs in by id or alias.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateToken {
    pub user: Text,
    pub password: Text,
}

/// A new id from the installation's generator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GenerateId {}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GeneratedId {
    pub id: crate::id::CommandId,
}
