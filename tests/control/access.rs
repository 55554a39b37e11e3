//! Who gets in: passwords, tokens that are renewed and revoked, keys of programs.

use harness::{Installation, Options, Studio, eventually, game_config};
use omgservers_protocol::call::PasswordChange;
use omgservers_protocol::client::Client;
use omgservers_protocol::developer::{self as dev, Scope};
use omgservers_protocol::{Qualifier, admin, player, support};

use super::{in_seconds, place, refusal, refused, text, walk};

fn two_instances() -> Options {
    Options {
        databases: 2,
        instances: 2,
        ..Options::default()
    }
}

/// The same caller at each instance, past the dispatcher.
fn everywhere(installation: &Installation, client: &Client) -> Vec<Client> {
    let token = client.token().expect("a token").to_owned();
    (0..installation.services.len())
        .map(|index| format!("http://{}", installation.service_address(index)))
        .map(|address| {
            let client = Client::new(&address).expect("a plain address");
            client.with_token(token.clone())
        })
        .collect()
}

async fn is_refused_everywhere(installation: &Installation, client: &Client, qualifier: Qualifier) {
    for client in everywhere(installation, client) {
        eventually("the token is refused", || async {
            let answer = client.send(&dev::ListApiKeys::default()).await.err()?;
            let expected = format!("({qualifier:?}, HTTP 401)");
            answer.to_string().ends_with(&expected).then_some(())
        })
        .await;
    }
}

async fn log_in(installation: &Installation, user: impl ToString, password: &str) -> Client {
    let call = dev::CreateToken {
        user_id: text(user),
        password: text(password),
    };
    let token = installation.client().send(&call).await.expect("the developer logs in");
    installation.client().with_token(token.raw_token)
}

async fn key(studio: &Studio, project: Option<&str>, scopes: &[Scope], expires: String) -> dev::CreatedApiKey {
    let call = dev::CreateApiKey {
        tenant: text(studio.tenant),
        project: project.map(text),
        name: text("build server"),
        scopes: scopes.to_vec(),
        expires,
    };
    studio.developer.send(&call).await.expect("a key")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_or_a_deletion_revokes_tokens_on_every_instance() {
    let installation = Installation::start(two_instances()).await;
    let studio = Studio::open(&installation).await;
    let key = key(&studio, None, Scope::ALL, in_seconds(3_600)).await;
    let program = installation.client().with_token(key.api_key.as_str());
    for client in everywhere(&installation, &studio.developer) {
        client
            .send(&dev::ListApiKeys::default())
            .await
            .expect("the token is good");
    }

    // A token that is about to expire is exchanged for a fresh one.
    let renewed = studio.developer.send(&dev::RenewToken {}).await.expect("a fresh token");
    let renewed = installation.client().with_token(renewed.raw_token);
    renewed.send(&dev::ListApiKeys::default()).await.expect("it is good");

    let change = |old: &str| {
        dev::ChangePassword(PasswordChange {
            password: text(old),
            new_password: text("correct horse battery"),
        })
    };
    let wrong = refusal(&studio.developer, &change("not the password")).await;
    assert_eq!(wrong, refused(401, "WRONG_CREDENTIALS"));
    for unusable in ["ä".repeat(37), "short".to_owned()] {
        let call = dev::ChangePassword(PasswordChange {
            password: text(&studio.password),
            new_password: text(unusable),
        });
        assert_eq!(
            refusal(&studio.developer, &call).await,
            refused(400, "VALIDATION_CONSTRAINT_VIOLATED"),
            "what would be cut off is refused, and what is soon guessed"
        );
    }
    studio.developer.send(&change(&studio.password)).await.expect("changed");
    for old in [&studio.developer, &renewed] {
        is_refused_everywhere(&installation, old, Qualifier::WrongCredentials).await;
    }
    let old = dev::CreateToken {
        user_id: text(studio.user),
        password: text(&studio.password),
    };
    assert_eq!(
        refusal(&installation.client(), &old).await,
        refused(401, "WRONG_CREDENTIALS")
    );
    let now = log_in(&installation, studio.user, "correct horse battery").await;
    for client in everywhere(&installation, &now) {
        client
            .send(&dev::ListApiKeys::default())
            .await
            .expect("the new token is good");
    }
    assert_eq!(
        refusal(&program, &dev::ListApiKeys::default()).await,
        refused(403, "PERMISSION_NOT_FOUND"),
        "what other keys there are is none of its business"
    );
    // Programs do not log in again: their keys outlive the password.
    program
        .send(&dev::ListTenants::default())
        .await
        .expect("the key is good");

    // Support makes a new one for somebody who lost theirs, and gives a name to log in by.
    let support = installation.support().await;
    let call = support::ResetDeveloperPassword { user_id: studio.user };
    let reset = support.send(&call).await.expect("a new password");
    is_refused_everywhere(&installation, &now, Qualifier::WrongCredentials).await;
    // Somebody else may have known the old one, and made keys.
    is_refused_everywhere(&installation, &program, Qualifier::WrongCredentials).await;
    let call = support::CreateDeveloperAlias {
        user_id: studio.user,
        alias: text("ada"),
    };
    support.send(&call).await.expect("a name");
    let ada = log_in(&installation, "ada", &reset.password).await;
    assert!(
        ada.send(&dev::ListApiKeys::default())
            .await
            .expect("a list")
            .items
            .is_empty()
    );

    let call = support::DeleteDeveloper { user_id: studio.user };
    assert!(support.send(&call).await.expect("deleted").deleted);
    assert!(!support.send(&call).await.expect("answered").deleted, "once is enough");
    is_refused_everywhere(&installation, &ada, Qualifier::UserNotFound).await;
    is_refused_everywhere(&installation, &program, Qualifier::UserNotFound).await;
    for named in [text(studio.user), text("ada")] {
        let call = dev::CreateToken {
            user_id: named,
            password: text(&reset.password),
        };
        assert_eq!(
            refusal(&installation.client(), &call).await,
            refused(401, "USER_NOT_FOUND"),
            "by number and by name"
        );
    }
    eventually("the name is free again", || async {
        let (other, ..) = Studio::hire(&installation).await;
        let call = support::CreateDeveloperAlias {
            user_id: other,
            alias: text("ada"),
        };
        support.send(&call).await.ok()
    })
    .await;
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_players_change_their_passwords_too() {
    let installation = Installation::start(Options::default()).await;
    let admin = installation.admin().await;
    let call = admin::ResetPassword { user: text("support") };
    let reset = admin.send(&call).await.expect("a new password for support");
    let call = support::CreateToken {
        user: text("support"),
        password: text(&reset.password),
    };
    let support = installation.client().send(&call).await.expect("support logs in");
    let support = installation.client().with_token(support.raw_token);
    support.send(&support::RenewToken {}).await.expect("a fresh token");
    let unknown = admin::ResetPassword { user: text("nobody") };
    assert_eq!(refusal(&admin, &unknown).await, refused(404, "OBJECT_NOT_FOUND"));

    let guest = installation
        .client()
        .send(&player::CreateUser {})
        .await
        .expect("a player");
    let log_in = async |password: &str| {
        let call = player::CreateToken {
            user_id: guest.user_id,
            password: text(password),
        };
        installation.client().send(&call).await
    };
    let token = log_in(&guest.password).await.expect("a token").raw_token;
    let player = installation.client().with_token(token);
    let call = player::ChangePassword(PasswordChange {
        password: text(&guest.password),
        new_password: text("four words are better"),
    });
    player.send(&call).await.expect("changed");
    assert!(log_in(&guest.password).await.is_err(), "the old one is wrong now");
    log_in("four words are better").await.expect("the new one is right");
    eventually("the old token is refused", || async {
        player.send(&player::RenewToken {}).await.err()
    })
    .await;
    // Support looks after developers, not after players.
    let call = support::ResetDeveloperPassword { user_id: guest.user_id };
    assert_eq!(refusal(&support, &call).await, refused(404, "OBJECT_NOT_FOUND"));
    let call = support::DeleteDeveloper { user_id: guest.user_id };
    assert!(!support.send(&call).await.expect("answered").deleted);
    installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_good_for_its_scopes_its_project_and_its_time() {
    let installation = Installation::start(two_instances()).await;
    let studio = Studio::open(&installation).await;
    let version = studio.version(game_config(), "local://").await;
    let (tenant, project, stage) = place(&studio);
    let other = studio
        .developer
        .send(&dev::CreateProject { tenant: tenant.clone() })
        .await
        .expect("another project");
    let with = |key: &dev::CreatedApiKey| installation.client().with_token(key.api_key.as_str());
    let create = |project: &omgservers_protocol::text::Text| dev::CreateVersion {
        tenant: tenant.clone(),
        project: project.clone(),
        config: game_config(),
    };
    let deploy = dev::DeployVersion {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        version_id: version,
        config: None,
    };
    let look = dev::GetProjectDetails {
        tenant: tenant.clone(),
        project: project.clone(),
    };

    let build = key(&studio, Some(project.as_str()), &[Scope::Build], in_seconds(3_600)).await;
    let builder = with(&build);
    builder.send(&create(&project)).await.expect("it may build");
    let no = refused(403, "PERMISSION_NOT_FOUND");
    assert_eq!(refusal(&builder, &create(&text(other.project_id))).await, no);
    assert_eq!(refusal(&builder, &deploy).await, no);
    assert_eq!(refusal(&builder, &look).await, no);
    let new_key = dev::CreateApiKey {
        tenant: tenant.clone(),
        project: None,
        name: text("x"),
        scopes: Scope::ALL.to_vec(),
        expires: in_seconds(60),
    };
    assert_eq!(refusal(&builder, &new_key).await, no);
    assert_eq!(refusal(&builder, &dev::RenewToken {}).await, no);
    assert_eq!(refusal(&builder, &admin::GenerateId {}).await, no);

    let all = key(&studio, None, Scope::ALL, in_seconds(3_600)).await;
    let deployer = with(&all);
    deployer.send(&deploy).await.expect("it may deploy");
    deployer.send(&look).await.expect("it may look");
    // It can do what its developer can, and nothing in another tenant.
    let stranger = Studio::open(&installation).await;
    let call = dev::GetTenantDetails {
        tenant: text(stranger.tenant),
    };
    assert_eq!(refusal(&deployer, &call).await, no);

    for (expires, scopes) in [
        (in_seconds(-5), vec![Scope::Read]),
        (in_seconds(3 * 366 * 86_400), vec![Scope::Read]),
        ("tomorrow".into(), vec![Scope::Read]),
        (in_seconds(60), vec![]),
    ] {
        let call = dev::CreateApiKey {
            expires,
            scopes,
            ..new_key.clone()
        };
        let answer = refusal(&studio.developer, &call).await;
        assert_eq!(answer, refused(400, "VALIDATION_CONSTRAINT_VIOLATED"));
    }
    let short = with(&key(&studio, None, &[Scope::Read], in_seconds(2)).await);
    short.send(&look).await.expect("it is good for two seconds");
    eventually("the key has expired", || async { short.send(&look).await.err() }).await;
    for forged in [
        "omgk.1.2.x",
        "omgk.",
        "omgk.x.y.z",
        &format!("{}x", build.api_key.as_str()),
    ] {
        let forger = installation.client().with_token(forged);
        assert_eq!(
            refusal(&forger, &look).await,
            refused(401, "WRONG_CREDENTIALS"),
            "{forged}"
        );
    }

    let keys = walk!(studio.developer, 2, |paging| dev::ListApiKeys { paging });
    assert_eq!(keys.len(), 3);
    assert!(
        keys.iter()
            .any(|one| one.id == build.id && one.scopes == [Scope::Build])
    );
    for client in everywhere(&installation, &builder) {
        client
            .send(&create(&project))
            .await
            .expect("it is good at every instance");
    }
    let call = dev::DeleteApiKey { id: build.id };
    assert!(
        !stranger.developer.send(&call).await.expect("answered").deleted,
        "not theirs"
    );
    assert!(studio.developer.send(&call).await.expect("deleted").deleted);
    for client in everywhere(&installation, &builder) {
        eventually("the key is refused", || async {
            client.send(&create(&project)).await.err()
        })
        .await;
    }
    installation.stop().await;
}
