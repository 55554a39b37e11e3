//! Words on the command line that mean something: names, ids, permissions, scopes.

use omgservers_protocol::developer::{ImageQualifier, Scope};
use omgservers_protocol::support::{ProjectPermission, StagePermission, TenantPermission};
use omgservers_protocol::text::{TEXT_CONSTRAINT, Text};

pub(super) fn text(argument: &str) -> Result<Text, String> {
    Text::new(argument).ok_or_else(|| TEXT_CONSTRAINT.to_owned())
}

pub(super) fn id<I: From<i64>>(argument: &str) -> Result<I, String> {
    argument
        .parse::<i64>()
        .map(I::from)
        .map_err(|_| "an id is a whole number".to_owned())
}

pub(super) fn tenant_permission(argument: &str) -> Result<TenantPermission, String> {
    word(argument, TenantPermission::ALL, TenantPermission::as_str)
}

pub(super) fn project_permission(argument: &str) -> Result<ProjectPermission, String> {
    word(argument, ProjectPermission::ALL, ProjectPermission::as_str)
}

pub(super) fn stage_permission(argument: &str) -> Result<StagePermission, String> {
    word(argument, StagePermission::ALL, StagePermission::as_str)
}

pub(super) fn scope(argument: &str) -> Result<Scope, String> {
    word(argument, Scope::ALL, Scope::as_str)
}

pub(super) fn image_qualifier(argument: &str) -> Result<ImageQualifier, String> {
    let all = [ImageQualifier::Universal, ImageQualifier::Lobby, ImageQualifier::Match];
    word(argument, &all, ImageQualifier::as_str)
}

pub(super) fn variable(argument: &str) -> Result<String, String> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(argument.to_owned()),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// One of these words, in the spelling of the wire or in kebab-case.
fn word<T: Copy>(argument: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let wanted = argument.to_uppercase().replace('-', "_");
    let found = all.iter().copied().find(|value| name(*value) == wanted);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|value| name(*value)).collect();
        format!("one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_in_both_spellings() {
        assert_eq!(
            tenant_permission("PROJECT_MANAGER"),
            Ok(TenantPermission::ProjectManager)
        );
        assert_eq!(tenant_permission("tenant-viewer"), Ok(TenantPermission::TenantViewer));
        assert!(tenant_permission("OWNER").unwrap_err().contains("PROJECT_MANAGER"));
        assert_eq!(image_qualifier("universal"), Ok(ImageQualifier::Universal));
        assert_eq!(scope("deploy"), Ok(Scope::Deploy));
    }
}
