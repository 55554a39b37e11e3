//! Secrets at rest: sealed with the installation's key and bound to their place, so that one copied elsewhere stays shut.

use anyhow::Context as _;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

/// The first byte of what is sealed, for the day on which another way is needed.
const VERSION: u8 = 1;

pub struct Vault(RandomizedNonceKey);

impl Vault {
    pub fn new(key: &[u8; 32]) -> Self {
        Self(RandomizedNonceKey::new(&AES_256_GCM, key).expect("the key has the length of the algorithm"))
    }

    pub fn seal(&self, secret: &[u8], context: &str) -> Vec<u8> {
        let mut sealed = secret.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(context.as_bytes()), &mut sealed)
            .expect("a secret is far shorter than the algorithm takes");
        let mut all = vec![VERSION];
        all.extend_from_slice(nonce.as_ref());
        all.append(&mut sealed);
        all
    }

    pub fn open(&self, sealed: &[u8], context: &str) -> anyhow::Result<String> {
        let damaged = "a stored secret cannot be opened: was OMGSERVERS_SECRETS_KEY changed?";
        let (head, body) = sealed.split_at_checked(1 + NONCE_LEN).context(damaged)?;
        anyhow::ensure!(head[0] == VERSION, damaged);
        let nonce = Nonce::try_assume_unique_for_key(&head[1..]).ok().context(damaged)?;
        let mut body = body.to_vec();
        let opened = self
            .0
            .open_in_place(nonce, Aad::from(context.as_bytes()), &mut body)
            .ok()
            .context(damaged)?;
        String::from_utf8(opened.to_vec()).context(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_with_its_key_in_its_place_only() {
        let vault = Vault::new(&[7; 32]);
        let sealed = vault.seal("hunter2".as_bytes(), "here");
        assert_eq!(vault.open(&sealed, "here").unwrap(), "hunter2");
        assert!(!String::from_utf8_lossy(&sealed).contains("hunter2"));
        assert_ne!(sealed, vault.seal("hunter2".as_bytes(), "here"));
        assert!(vault.open(&sealed, "there").is_err());
        assert!(Vault::new(&[8; 32]).open(&sealed, "here").is_err());
        assert!(vault.open(&sealed[..5], "here").is_err() && vault.open(&[], "here").is_err());
    }
}
