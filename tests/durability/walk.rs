//! A studio's whole life, step by step, with a mishap at each.

use std::collections::HashMap;
use std::time::Duration;

use harness::{Durable, ServiceProcess, eventually};
use omgservers_protocol::id::UserId;
use omgservers_protocol::token::Role;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;

use crate::http::{Answer, try_post, try_post_form};

/// Something that somebody asks for. `$name` in a body is what an earlier step learned.
pub(super) struct Step {
    /// What the same request hears if it happened already.
    again: Again,
    operation: &'static str,
    body: &'static str,
    /// What is learned from the answer: a name, and where it is.
    learns: Vec<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// One more.
    Anew,
    /// Refused, since a name is for one thing.
    Taken,
    /// Nothing to do.
    Nothing,
    /// It changes nothing anyway: asked until it says what is to be learned.
    Looks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    /// The service is killed when it has answered.
    KillAfter,
    /// The service is killed while it works on the request.
    KillDuring,
    /// The database is.
    CrashDuring,
}

/// What a repetition hears, the operation, its body, and what is learned from the answer.
pub(super) const BUILD: &str = r#"
anew    support/create-tenant {} tenant=/id
taken   support/create-tenant-alias {"tenant_id":"$tenant","alias":"acme"}
anew    support/create-developer {} user=/user_id
anew    support/create-developer {} friend=/user_id
taken   support/create-developer-alias {"user_id":"$user","alias":"ada"}
nothing support/create-tenant-permissions {"tenant":"acme","user_id":"$user","permissions_to_create":["PROJECT_MANAGER","TENANT_VIEWER"]}
anew    developer/create-project {"tenant":"acme"} project=/project_id
taken   developer/create-project-alias {"tenant":"acme","project_id":"$project","alias":"shooter"}
nothing support/create-project-permissions {"tenant":"acme","project":"shooter","user_id":"$friend","permissions_to_create":["VERSION_MANAGER","PROJECT_VIEWER"]}
anew    developer/create-stage {"tenant":"acme","project":"shooter"} stage=/stage_id
taken   developer/create-stage-alias {"tenant":"acme","stage_id":"$stage","alias":"live"}
nothing support/create-stage-permissions {"tenant":"acme","project":"shooter","stage":"live","user_id":"$friend","permissions_to_create":["DEPLOYMENT_MANAGER","STAGE_VIEWER"]}
anew    developer/create-version {"tenant":"acme","project":"shooter","config":{"modes":[]}} version=/version_id
anew    developer/upload-files-archive {"tenant":"acme","tenantVersionId":"$version"}
nothing developer/create-image {"tenant":"acme","project":"shooter","version":"$version","qualifier":"UNIVERSAL","image":"local://"}
nothing developer/set-stage-variable {"tenant":"acme","project":"shooter","stage":"live","name":"KEY","value":"x","secret":true}
anew    developer/create-api-key {"tenant":"acme","name":"ci","scopes":["DEPLOY"],"expires":"$soon"}
anew    developer/deploy-version {"tenant":"acme","project":"shooter","stage":"live","version_id":"$version"} deployment=/deployment_id
anew    player/create-user {} player=/user_id
anew    player/create-client {"tenant":"acme","project":"shooter","stage":"live"}
anew    developer/create-lobby-request {"tenant":"acme","deployment_id":"$deployment"}
"#;

pub(super) const DEMOLISH: &str = r#"
looks   developer/get-deployment-details {"tenant":"acme","deployment_id":"$deployment"} lobby=/details/lobby_refs/0/lobby_id matchmaker=/details/matchmaker_refs/0/matchmaker_id
nothing developer/delete-lobby {"lobby_id":"$lobby"}
nothing developer/delete-matchmaker {"matchmaker_id":"$matchmaker"}
anew    developer/create-matchmaker-request {"tenant":"acme","deployment_id":"$deployment"}
nothing support/delete-stage-permissions {"tenant":"acme","project":"shooter","stage":"live","user_id":"$friend","permissions_to_delete":["STAGE_VIEWER"]}
nothing developer/delete-deployment {"tenant":"acme","id":"$deployment"}
nothing developer/delete-version {"tenant":"acme","id":"$version"}
nothing developer/delete-stage {"tenant":"acme","project":"shooter","stage":"live"}
nothing developer/delete-project {"tenant":"acme","project":"shooter"}
nothing support/delete-developer {"user_id":"$friend"}
nothing support/delete-tenant {"tenant":"acme"}
"#;

/// A tenant that goes with all that is in it.
pub(super) const FALL: &str = r#"
anew    support/create-tenant {} heir=/id
anew    support/create-project {"tenant":"$heir"}
nothing support/delete-tenant {"tenant":"$heir"}
"#;

pub(super) fn steps(table: &'static str) -> impl Iterator<Item = Step> {
    table.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().expect("a word in every column");
        let again = match word() {
            "anew" => Again::Anew,
            "taken" => Again::Taken,
            "nothing" => Again::Nothing,
            _ => Again::Looks,
        };
        Step {
            again,
            operation: word(),
            body: word(),
            learns: words.map(|fact| fact.split_once('=').expect("name=place")).collect(),
        }
    })
}

pub(super) struct Walk {
    pub(super) durable: Durable,
    services: Vec<ServiceProcess>,
    pub(super) random: rand::rngs::StdRng,
    facts: HashMap<&'static str, String>,
    /// Counts requests: instances take turns.
    turn: usize,
    begun: std::time::Instant,
}

impl Walk {
    #[expect(clippy::print_stdout, reason = "a failed story can be told again")]
    pub(super) fn new(durable: Durable, services: Vec<ServiceProcess>) -> Self {
        let seed = rand::random();
        println!("the moments of this story's mishaps: seed {seed}");
        Self {
            durable,
            services,
            random: rand::rngs::StdRng::seed_from_u64(seed),
            facts: HashMap::from([("soon", crate::routes::in_an_hour())]),
            turn: 0,
            begun: std::time::Instant::now(),
        }
    }

    /// What an earlier step learned.
    pub(super) fn fact(&self, name: &str) -> i64 {
        self.facts[name].parse().expect("an id")
    }

    fn body(&self, step: &Step) -> Value {
        let mut body = step.body.to_owned();
        for (name, value) in &self.facts {
            body = body.replace(&format!("\"${name}\""), &format!("\"{value}\""));
        }
        serde_json::from_str(&body).expect("a body")
    }

    /// A request that can be sent while others are killed.
    fn request(&self, operation: &str, body: Value) -> impl Future<Output = Option<Answer>> + Send + use<> {
        let (area, name) = operation.split_once('/').expect("area/name");
        let base = &self.services[self.turn % self.services.len()].base;
        let url = format!("{base}/service/v1/entrypoint/{area}/request/{name}");
        let user = |fact: &str| UserId(self.facts.get(fact).and_then(|id| id.parse().ok()).unwrap_or(1));
        let tokens = &self.durable.tokens;
        let token = match area {
            "support" => tokens.for_user(UserId(1), Role::Support, 0),
            "developer" => tokens.for_user(user("user"), Role::Developer, 0),
            _ => tokens.for_user(user("player"), Role::Player, 0),
        };
        let is_form = name == "upload-files-archive";
        async move {
            if is_form {
                let file = ("version.zip", crate::routes::zip_with_a_file());
                try_post_form(&url, Some(&token), &body, file).await.ok()
            } else {
                try_post(&url, Some(&token), &body).await
            }
        }
    }

    /// Asks until somebody answers who has a database.
    async fn ask(&mut self, operation: &str, body: &Value) -> (Answer, bool) {
        let mut at_once = true;
        for _ in 0..600 {
            let answer = self.request(operation, body.clone()).await;
            self.turn += 1;
            if let Some(answer) = answer.filter(|answer| answer.status != 503) {
                return (answer, at_once);
            }
            at_once = false;
            self.services.iter_mut().for_each(ServiceProcess::revive);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nobody answers {operation} {body}:\n{}", self.services[0].log());
    }

    /// Does a step, with a mishap. What nobody answered is asked for again.
    pub(super) async fn take(&mut self, step: &Step, mishap: Mishap) {
        let body = self.body(step);
        if step.again == Again::Looks {
            return self.look(step, &body).await;
        }
        self.say(&format!("{} {mishap:?}", step.operation));
        let mut known = None;
        if mishap != Mishap::KillAfter {
            let asked = tokio::spawn(self.request(step.operation, body.clone()));
            // Any moment of a request's life, from its way there to its way back.
            let moment = Duration::from_micros(self.random.random_range(0..20_000));
            tokio::time::sleep(moment).await;
            self.strike(mishap).await;
            known = asked
                .await
                .expect("the request does not panic")
                .filter(|answer| answer.status != 503);
            self.turn += 1;
        }
        let is_repeated = known.is_none() && mishap != Mishap::KillAfter;
        let (answer, at_once) = match known {
            Some(answer) => (answer, true),
            None => self.ask(step.operation, &body).await,
        };
        self.check(step, &answer, is_repeated || !at_once);
        if mishap == Mishap::KillAfter {
            self.turn += self.services.len() - 1; // The one that answered.
            self.strike(mishap).await;
        }
    }

    /// Kills something; whatever it is, it is started again. Another instance stands in meanwhile.
    async fn strike(&mut self, mishap: Mishap) {
        if mishap == Mishap::CrashDuring {
            return self.durable.crash().await;
        }
        let (turn, count) = (self.turn, self.services.len());
        let service = &mut self.services[turn % count];
        service.kill();
        service.launch();
    }

    /// What a reader sees once everything has settled.
    async fn look(&mut self, step: &Step, body: &Value) {
        for _ in 0..600 {
            let (answer, _) = self.ask(step.operation, body).await;
            assert_eq!(answer.status, 200, "{}: {}", step.operation, answer.body);
            if self.learn(step, &answer.body) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{} never said what was waited for", step.operation);
    }

    fn learn(&mut self, step: &Step, body: &str) -> bool {
        let said: Value = serde_json::from_str(body).expect("JSON");
        step.learns.iter().all(|(name, place)| {
            let found = said.pointer(place).and_then(Value::as_str);
            if let Some(found) = found {
                self.facts.insert(name, found.to_owned());
            }
            found.is_some()
        })
    }

    /// An answer is that of something new, or, to a request that may have been done before, that of a repetition.
    fn check(&mut self, step: &Step, answer: &Answer, is_repeated: bool) {
        let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let did = ["deleted", "created"]
            .iter()
            .all(|field| said.get(field) != Some(&Value::Bool(false)))
            && ["created_permissions", "deleted_permissions"]
                .iter()
                .all(|field| said.get(field) != Some(&Value::Array(Vec::new())));
        let is_new = answer.status == 200 && did;
        let is_repetition = match step.again {
            Again::Taken => (answer.status, answer.qualifier.as_str()) == (400, "DB_CONSTRAINT_VIOLATED"),
            // What is deleted may be forgotten by now, with its name and the permissions on it.
            Again::Nothing if step.operation.contains("/delete-") => {
                answer.status == 200 || matches!(answer.status, 403 | 404)
            }
            Again::Nothing => answer.status == 200,
            Again::Anew | Again::Looks => false,
        };
        assert!(
            is_new || (is_repeated && is_repetition),
            "{} (repeated: {is_repeated}): {} {}",
            step.operation,
            answer.status,
            answer.body
        );
        assert!(
            !is_new || self.learn(step, &answer.body),
            "{}: {}",
            step.operation,
            answer.body
        );
    }

    /// Tells how far the story has come, for one that fails.
    #[expect(clippy::print_stdout, reason = "a failed story says how far it came")]
    pub(super) fn say(&self, what: &str) {
        println!("{:6.2} s {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Deletes what was made by requests that nobody was told the outcome of.
    pub(super) async fn delete_strays(&mut self) {
        let strays: Vec<(i64,)> = self
            .durable
            .query("select id from $schema.tenant where deleted is null")
            .await;
        for (id,) in strays {
            self.ask("support/delete-tenant", &serde_json::json!({"tenant": id.to_string()}))
                .await;
        }
        let strays: Vec<(i64,)> = self
            .durable
            .query("select id from $schema.account where role = 'developer' and deleted is null")
            .await;
        for (id,) in strays {
            self.ask(
                "support/delete-developer",
                &serde_json::json!({"user_id": id.to_string()}),
            )
            .await;
        }
    }

    pub(super) async fn end(mut self) {
        for service in &mut self.services {
            service.kill();
            let log = service.log();
            assert!(!log.contains("panicked"), "{log}");
        }
        eventually("the services' connections are closed", || async {
            let open: Vec<(i64,)> = self
                .durable
                .query("select count(*) from pg_stat_activity where application_name = 'omgservers-service'")
                .await;
            open.iter().all(|(count,)| *count == 0).then_some(())
        })
        .await;
        self.durable.stop().await;
    }
}
