//! The RSA key and the certificate for tokens of the registry: checked at the start, used once there is a registry.

use anyhow::{Context, ensure};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair, PublicEncryptingKey};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};

const PRIVATE_KEY: &str = "OMGSERVERS_SERVER_PRIVATE_KEY";
const PUBLIC_KEY: &str = "OMGSERVERS_SERVER_PUBLIC_KEY";
const CERTIFICATE: &str = "OMGSERVERS_SERVER_X5C";

/// Refuses what is no RSA key or certificate, and what does not belong together. Nothing of it is shown.
pub(super) fn check(private: Option<&str>, public: Option<&str>, certificate: Option<&str>) -> anyhow::Result<()> {
    let own = private.map(public_part).transpose()?;
    if let Some(given) = public {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(&pem(PUBLIC_KEY, given)?);
        let key = key.ok().filter(|key| PublicEncryptingKey::from_der(key).is_ok());
        let key = key.with_context(|| format!("{PUBLIC_KEY} is not an RSA key in PEM of 2048 to 8192 bits"))?;
        ensure!(
            own.as_deref().is_none_or(|own| own == &*key),
            "{PUBLIC_KEY} is not the public part of {PRIVATE_KEY}"
        );
    }
    if let Some(given) = certificate {
        let der = certificate_der(given)?;
        ensure!(
            own.is_none_or(|own| der.windows(own.len()).any(|part| part == own)),
            "{CERTIFICATE} is not a certificate of {PRIVATE_KEY}"
        );
    }
    Ok(())
}

/// The public part of a private key.
fn public_part(given: &str) -> anyhow::Result<Vec<u8>> {
    let key = match PrivateKeyDer::from_pem_slice(&pem(PRIVATE_KEY, given)?) {
        Ok(PrivateKeyDer::Pkcs8(der)) => KeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        Ok(PrivateKeyDer::Pkcs1(der)) => KeyPair::from_der(der.secret_pkcs1_der()).ok(),
        _ => None,
    };
    let key = key.with_context(|| format!("{PRIVATE_KEY} is not an RSA key in PEM of 2048 to 8192 bits"))?;
    let public: PublicKeyX509Der<'_> = key.public_key().as_der().context("a key has a public part")?;
    Ok(public.as_ref().to_vec())
}

/// A certificate in base64, or in PEM.
fn certificate_der(given: &str) -> anyhow::Result<Vec<u8>> {
    // A sequence that says how long it is: nothing else tells DER from any other base64, such as a path.
    let is_der = |der: &Vec<u8>| matches!(der[..], [0x30, 0x82, high, low, ..] if usize::from(u16::from_be_bytes([high, low])) + 4 == der.len());
    if let Some(der) = STANDARD.decode(given.trim()).ok().filter(is_der) {
        return Ok(der);
    }
    let der = CertificateDer::from_pem_slice(&pem(CERTIFICATE, given)?).ok();
    der.map(|der| der.to_vec())
        .filter(is_der)
        .with_context(|| format!("{CERTIFICATE} is neither DER in base64 nor a certificate in PEM"))
}

/// PEM itself, or a path to it with or without `file:`.
fn pem(name: &str, given: &str) -> anyhow::Result<Vec<u8>> {
    if given.contains("-----BEGIN") {
        return Ok(given.into());
    }
    let path = given.strip_prefix("file:").unwrap_or(given);
    std::fs::read(path).with_context(|| format!("{name}: cannot read its file"))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::Pkcs8V1Der;
    use aws_lc_rs::rsa::KeySize;

    use super::*;

    fn written(kind: &str, der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        let lines = text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap());
        let lines: Vec<&str> = lines.collect();
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
    }

    /// A private key, its public part, and what is enough of a certificate for it.
    fn make() -> (String, String, Vec<u8>) {
        let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let private: Pkcs8V1Der<'_> = key.as_der().unwrap();
        let public: PublicKeyX509Der<'_> = key.public_key().as_der().unwrap();
        let length = u16::try_from(public.as_ref().len()).unwrap().to_be_bytes();
        let certificate = [&[0x30, 0x82], &length[..], public.as_ref()].concat();
        (
            written("PRIVATE KEY", private.as_ref()),
            written("PUBLIC KEY", public.as_ref()),
            certificate,
        )
    }

    #[test]
    fn a_key_and_a_certificate_belong_together_or_are_refused_by_name() {
        let (private, public, certificate) = make();
        let (_, other_public, other_certificate) = make();
        let [x5c, other_x5c] = [&certificate, &other_certificate].map(|der| STANDARD.encode(der));
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name).display().to_string();
            std::fs::write(&path, text).unwrap();
            path
        };
        check(None, None, None).unwrap();
        check(Some(&private), Some(&public), Some(&x5c)).unwrap();
        check(None, Some(&other_public), Some(&x5c)).unwrap();
        let private = format!("file:{}", file("private.pem", &private));
        let public = file("public.pem", &public);
        let x5c = file("certificate.pem", &written("CERTIFICATE", &certificate));
        check(Some(&private), Some(&public), Some(&x5c)).unwrap();

        let refused = |private: &str, public: &str, x5c: &str, name: &str| {
            let heard = check(Some(private), Some(public), Some(x5c)).unwrap_err().to_string();
            assert!(heard.starts_with(name), "{heard}");
        };
        let nowhere = folder.path().join("nowhere").display().to_string();
        for bad in [nowhere.as_str(), public.as_str(), "-----BEGIN nothing"] {
            refused(bad, &public, &x5c, PRIVATE_KEY);
        }
        for bad in [nowhere.as_str(), x5c.as_str(), other_public.as_str()] {
            refused(&private, bad, &x5c, PUBLIC_KEY);
        }
        for bad in [nowhere.as_str(), public.as_str(), other_x5c.as_str()] {
            refused(&private, &public, bad, CERTIFICATE);
        }
    }
}
