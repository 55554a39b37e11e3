//! Which installation is talked to, and what is remembered about it.

use std::collections::BTreeMap;

use omgservers_protocol::text::Text;
use serde_json::json;

use crate::arguments::Environment;
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::state::PREFIX;

/// The installation that everybody may use.
pub(crate) const PUBLIC_URL: &str = "https://api.omgservers.com";

pub(crate) async fn run(context: &mut Context, command: Environment) -> Result {
    match command {
        Environment::Reset => {
            context.state.reset()?;
            context
                .output
                .result(&json!({}), |_| "Everything that was stored is forgotten.".to_owned());
        }
        Environment::PrintCurrent => {
            let values: BTreeMap<_, _> = context
                .state
                .all()
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (format!("{PREFIX}{name}"), value))
                .collect();
            context.output.result(&values, |values| {
                let lines: Vec<_> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
                if lines.is_empty() {
                    "Nothing is stored.".to_owned()
                } else {
                    lines.join("\n")
                }
            });
        }
        Environment::PrintVariable { variable } => print_variable(context, &variable)?,
        Environment::Use { name, service_url } => {
            use_environment(context, &name, &service_url)?;
            print_environment(context, &name, &service_url);
        }
        Environment::UsePublic => {
            use_environment(context, "public", PUBLIC_URL)?;
            print_environment(context, "public", PUBLIC_URL);
        }
        Environment::UseLocal { port } => {
            let url = format!("http://localhost:{port}");
            use_environment(context, "local", &url)?;
            for role in [Role::Admin, Role::Support] {
                let word = || Text::new(role.to_string()).expect("the names of roles are short");
                context.log_in(role, word(), word()).await.map_err(|failure| match failure.status {
                    Some(401) => failure.hint(format!(
                        "this tries the passwords of development, which {role} no longer has; the address is stored, so \
                         `omgctl {role} useCredentials {role} -` logs in by another one"
                    )),
                    _ => failure,
                })?;
            }
            print_environment(context, "local", &url);
            context.output.note("Logged in as admin and support.");
        }
    }
    Ok(())
}

/// A value and nothing else: scripts build on it. Small letters are understood, and names such as `tenant_id`.
pub(crate) fn print_variable(context: &Context, variable: &str) -> Result {
    let name = variable.strip_prefix(PREFIX).unwrap_or(variable);
    let state = &context.state;
    let upper = name.to_uppercase();
    let meant = match upper.as_str() {
        "DEVELOPER" | "USER" | "USER_ID" => "DEVELOPER_USER",
        upper => upper.strip_suffix("_ID").unwrap_or(upper),
    };
    let value = state.get(name).or(state.get(&upper)).or(state.get(meant));
    let value = value.ok_or_else(|| {
        let failure = Failure::refused(format!("there is no variable `{name}`"));
        failure.hint("`omgctl environment printCurrent` shows what is stored")
    })?;
    context.output.bare(value);
    Ok(())
}

fn use_environment(context: &mut Context, name: &str, url: &str) -> Result {
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return Err(Failure::usage(format!("`{url}` is not an address")).hint("it starts with http:// or https://"));
    }
    forget_others(context, url)?;
    context
        .state
        .set([("ENVIRONMENT_NAME", name.to_owned()), ("SERVICE_URL", url.to_owned())])?;
    Ok(())
}

/// Logins and ids of another installation are not shown to this one.
fn forget_others(context: &mut Context, url: &str) -> Result {
    let same = |old: &str| old.trim_end_matches('/') == url.trim_end_matches('/');
    let Some(old) = context
        .state
        .get("SERVICE_URL")
        .filter(|old| !same(old))
        .map(str::to_owned)
    else {
        return Ok(());
    };
    let logins = [Role::Admin, Role::Support, Role::Developer]
        .into_iter()
        .flat_map(|role| ["USER", "PASSWORD", "TOKEN"].map(|suffix| role.variable(suffix)));
    let ids = ["TENANT", "PROJECT", "STAGE", "VERSION", "FILES_ARCHIVE", "DEPLOYMENT"].map(str::to_owned);
    let stored: Vec<_> = logins
        .chain(ids)
        .filter(|name| context.state.get(name).is_some())
        .collect();
    if !stored.is_empty() {
        context
            .state
            .set(stored.iter().map(|name| (name.as_str(), String::new())))?;
        context.output.note(format_args!(
            "Logins and ids of {old} are forgotten: they are not for {url}."
        ));
    }
    Ok(())
}

fn print_environment(context: &Context, name: &str, url: &str) {
    let value = json!({"name": name, "service_url": url});
    context
        .output
        .result(&value, |_| format!("Talking to {name} at {url} from now on."));
}
