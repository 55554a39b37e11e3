//! Messages between players and a runtime when one side says more than the other takes. The runtime is the story itself, on
//! a developer's own machine.

use std::collections::HashMap;
use std::time::Duration;

use harness::{Installation, Options, Studio, eventually};
use omgservers_protocol::client::{CallError, Client, to_json};
use omgservers_protocol::id::{ClientId, LocalRunId, MessageId, RuntimeId};
use omgservers_protocol::text::Text;
use omgservers_protocol::w1::{PlayerMessage, RuntimeCommand};
use omgservers_protocol::{Json, developer as dev, player, runtime};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn text(value: impl ToString) -> Text {
    Text::new(value.to_string()).expect("a short text")
}

/// A stage whose one lobby runs here.
struct Stage {
    installation: Installation,
    studio: Studio,
    run: LocalRunId,
}

/// One start of the lobby.
struct Start {
    id: RuntimeId,
    generation: i64,
    password: String,
}

/// Says what runs on the machine.
struct Keeper {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Keeper {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it does not panic");
    }
}

impl Stage {
    async fn open(options: Options) -> Self {
        let installation = Installation::start(options).await;
        let studio = Studio::open(&installation).await;
        let version = studio.version(harness::game_config(), "local://").await;
        let config = serde_json::from_value(json!({"min_lobbies": 1, "max_lobbies": 1})).expect("a config");
        studio.deploy(version, Some(config)).await;
        let call = dev::StartLocalRun {
            tenant: text(studio.tenant),
            project: text(studio.project),
            stage: text(studio.stage),
        };
        let run = studio.developer.send(&call).await.expect("a run").run_id;
        Self {
            installation,
            studio,
            run,
        }
    }

    fn running(&self, running: Vec<dev::LocalStart>) -> dev::InterchangeLocalRun {
        dev::InterchangeLocalRun {
            tenant: text(self.studio.tenant),
            run_id: self.run,
            running,
            ended: Vec::new(),
            restart: false,
            wait_ms: Some(200),
        }
    }

    /// The machine knows of no start, so one is begun.
    async fn start(&self) -> Start {
        let call = self.running(Vec::new());
        eventually("a start", || async {
            let wanted = self.studio.developer.send(&call).await.expect("an answer").runtimes;
            let one = wanted.into_iter().next()?;
            let environment = one.environment?;
            Some(Start {
                id: one.runtime_id,
                generation: one.generation,
                password: environment.get("OMGSERVERS_PASSWORD")?.as_str().to_owned(),
            })
        })
        .await
    }

    /// From now on the machine says that it runs.
    fn keep(&self, start: &Start) -> Keeper {
        let running = dev::LocalStart {
            runtime_id: start.id,
            generation: start.generation,
        };
        let (developer, call) = (self.studio.developer.clone(), self.running(vec![running]));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() && developer.send(&call).await.is_ok() {
                tokio::time::timeout(Duration::from_secs(1), stopped.cancelled())
                    .await
                    .ok();
            }
        });
        Keeper { stop, task }
    }

    async fn log_in(&self, start: &Start) -> Game {
        let call = runtime::CreateToken {
            runtime_id: start.id,
            password: text(&start.password),
        };
        let nobody = self.installation.client();
        let tokens = nobody.send(&call).await.expect("tokens");
        Game {
            client: nobody.with_token(tokens.api_token),
            received: Vec::new(),
        }
    }

    async fn sign_up(&self) -> Client {
        let nobody = self.installation.client();
        let user = nobody.send(&player::CreateUser {}).await.expect("a player");
        let call = player::CreateToken {
            user_id: user.user_id,
            password: text(user.password),
        };
        nobody.with_token(nobody.send(&call).await.expect("a token").raw_token)
    }

    async fn join(&self, user: &Client) -> Guest {
        let call = player::CreateClient {
            tenant: text(self.studio.tenant),
            project: text(self.studio.project),
            stage: text(self.studio.stage),
        };
        Guest {
            user: user.clone(),
            id: user.send(&call).await.expect("a client").client_id,
        }
    }

    async fn guest(&self) -> Guest {
        self.join(&self.sign_up().await).await
    }

    /// Rows and bytes of a queue.
    async fn size(&self, table: &str, key: &str, id: i64) -> (i64, i64) {
        let app = self.installation.services[0].app();
        let mut tx = app.db.begin(id).await.expect("a transaction");
        let column = if table == "client_outgoing" { "data" } else { "body" };
        let query =
            format!("select count(*), coalesce(sum(length({column}::text)), 0)::bigint from {table} where {key} = $1");
        sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(id)
            .fetch_one(&mut *tx)
            .await
            .expect("a size")
    }
}

/// The game server.
struct Game {
    client: Client,
    /// What was taken last and is not acknowledged yet.
    received: Vec<RuntimeCommand>,
}

impl Game {
    async fn interchange(&self, call: runtime::Interchange) -> Result<Vec<RuntimeCommand>, CallError> {
        let reply = self.client.send(&call).await?.incoming_commands;
        let read = |raw: &Json| serde_json::from_str(raw.get()).expect("a command");
        Ok(reply.iter().map(read).collect())
    }

    /// Says something and takes nothing: what waits.
    async fn say(&self, commands: &[Value]) -> Vec<RuntimeCommand> {
        let call = runtime::Interchange {
            outgoing_commands: commands.iter().map(to_json).collect(),
            ..runtime::Interchange::default()
        };
        self.interchange(call).await.expect("an answer")
    }

    /// Is ready, and calls now and then without taking anything, so that it does not count as silent.
    async fn stay(&self) {
        self.say(&[]).await;
        let client = self.client.clone();
        tokio::spawn(async move {
            while client.send(&runtime::Interchange::default()).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        });
    }

    /// Acknowledges what came and waits a while for more.
    async fn take(&mut self) -> &[RuntimeCommand] {
        let call = runtime::Interchange {
            consumed_commands: self.received.iter().map(|command| command.id).collect(),
            wait_ms: Some(1_000),
            ..runtime::Interchange::default()
        };
        self.received = self.interchange(call).await.expect("an answer");
        &self.received
    }

    /// Takes until so many messages of players came: what each said, in order.
    async fn hear(&mut self, count: usize) -> HashMap<ClientId, Vec<i64>> {
        let mut heard: HashMap<ClientId, Vec<i64>> = HashMap::new();
        let hearing = async {
            let mut total = 0;
            while total < count {
                for command in self.take().await {
                    if command.qualifier == "HANDLE_MESSAGE" {
                        let body: Value = serde_json::from_str(command.body.get()).expect("a body");
                        let client = body["client_id"]
                            .as_str()
                            .and_then(|id| id.parse().ok())
                            .expect("an id");
                        let number = body["message"]["number"].as_i64().expect("a number");
                        heard.entry(ClientId(client)).or_default().push(number);
                        total += 1;
                    }
                }
            }
        };
        let in_time = tokio::time::timeout(harness::DEADLINE, hearing).await.is_ok();
        let counts: Vec<usize> = heard.values().map(Vec::len).collect();
        assert!(in_time, "waited in vain for {count} messages, heard {counts:?}");
        heard
    }
}

struct Guest {
    user: Client,
    id: ClientId,
}

impl Guest {
    async fn interchange(
        &self,
        outgoing: Vec<Json>,
        consumed: Vec<MessageId>,
    ) -> Result<Vec<PlayerMessage>, CallError> {
        let call = player::Interchange {
            client_id: self.id,
            outgoing_messages: outgoing,
            consumed_messages: consumed,
            wait_ms: None,
        };
        let reply = self.user.send(&call).await?.incoming_messages;
        let read = |raw: &Json| serde_json::from_str(raw.get()).expect("a message");
        Ok(reply.iter().map(read).collect())
    }

    /// Says numbered things, each with so many bytes besides. The status of the answer.
    async fn say(&self, numbers: std::ops::Range<i64>, bytes: usize) -> u16 {
        let message = |number: i64| {
            let data = json!({"number": number, "ballast": "x".repeat(bytes)});
            to_json(&json!({"id": number, "qualifier": "CLIENT_OUTGOING_MESSAGE", "body": {"data": data}}))
        };
        match self.interchange(numbers.map(message).collect(), Vec::new()).await {
            Ok(_) => 200,
            Err(cause) => cause.status().expect("an answer"),
        }
    }

    async fn read(&self) -> Vec<PlayerMessage> {
        self.interchange(Vec::new(), Vec::new()).await.expect("messages")
    }

    async fn wait_for_the_lobby(&self) {
        eventually("the lobby", || async { game_of(&self.read().await) }).await;
    }

    /// Everything that waits, reply by reply.
    async fn take_all(&self) -> Vec<PlayerMessage> {
        let mut all = Vec::new();
        let mut consumed = Vec::new();
        loop {
            let reply = self.interchange(Vec::new(), consumed).await.expect("messages");
            if reply.is_empty() {
                return all;
            }
            consumed = reply.iter().map(|message| message.id).collect();
            all.extend(reply);
        }
    }
}

fn respond(guest: &Guest, number: usize, bytes: usize) -> Value {
    let message = json!({"number": number, "ballast": "x".repeat(bytes)});
    json!({"qualifier": "RESPOND_CLIENT", "body": {"client_id": guest.id, "message": message}})
}

fn numbers(messages: &[PlayerMessage]) -> Vec<usize> {
    let produced = messages
        .iter()
        .filter(|message| message.qualifier == "SERVER_OUTGOING_MESSAGE");
    let number = |message: &PlayerMessage| {
        let body: Value = serde_json::from_str(message.body.get()).expect("a body");
        body["message"]["number"].as_u64().expect("a number") as usize
    };
    produced.map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_not_kept_is_not_acknowledged_and_arrives_once_when_sent_again() {
    let stage = Stage::open(Options::default()).await;
    let start = stage.start().await;
    stage.keep(&start);
    let guest = stage.guest().await;
    // Nobody takes anything yet.
    assert_eq!(guest.say(0..300, 0).await, 503);
    assert_eq!(guest.say(0..300, 0).await, 503, "there is no room yet");
    assert_eq!(stage.size("client_outgoing", "client_id", guest.id.get()).await.0, 256);
    let mut game = stage.log_in(&start).await;
    let mut heard = game.hear(256).await.remove(&guest.id).expect("messages");
    eventually("there is room again", || async {
        (guest.say(0..300, 0).await == 200).then_some(())
    })
    .await;
    heard.extend(game.hear(44).await.remove(&guest.id).expect("messages"));
    assert_eq!(heard, (0..300).collect::<Vec<i64>>());
    // A runtime that listens soon makes room: then also more than fit are taken by one call.
    let mut next = 300;
    while guest.say(next..next + 300, 0).await != 200 {
        eventually("there is room again", || async {
            (guest.say(next..next + 300, 0).await == 200).then_some(())
        })
        .await;
        game.hear(300).await;
        next += 300;
        assert!(next < 6_000, "no call was taken at once");
    }
    let heard = game.hear(300).await.remove(&guest.id).expect("messages");
    assert_eq!(heard, (next..next + 300).collect::<Vec<i64>>());
    // Without numbers a repetition cannot be told from something new, so such a batch is kept whole or not at all.
    let unnumbered = |count: usize| {
        let message = json!({"qualifier": "CLIENT_OUTGOING_MESSAGE", "body": {"data": {"number": -1}}});
        vec![to_json(&message); count]
    };
    let statuses = async |count: usize| {
        let answer = guest.interchange(unnumbered(count), Vec::new()).await;
        answer.map_or_else(|cause| cause.status(), |_| Some(200))
    };
    assert_eq!(statuses(256).await, Some(200));
    assert_eq!(statuses(257).await, Some(400), "that many are never kept at once");
    assert_eq!(game.hear(256).await[&guest.id], vec![-1; 256]);
    stage.installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_takes_nothing_holds_its_players_up_and_they_go_on_when_it_does() {
    let stage = Stage::open(Options {
        databases: 2,
        instances: 2,
        ..Options::default()
    })
    .await;
    let start = stage.start().await;
    stage.keep(&start);
    let mut game = stage.log_in(&start).await;
    game.stay().await;
    let mut guests = Vec::new();
    for _ in 0..6 {
        let guest = stage.guest().await;
        guest.wait_for_the_lobby().await;
        guests.push(guest);
    }
    // Many small ones from most, and large ones from the first.
    let mut said = Vec::new();
    for (index, guest) in guests.iter().enumerate() {
        let (batch, bytes) = if index == 0 { (10, 60_000) } else { (100, 10) };
        let mut next = 0;
        let mut refusals = 0;
        while refusals < 20 && next < 1_000 {
            match guest.say(next..next + batch, bytes).await {
                200 => next += batch,
                503 => {
                    refusals += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                status => panic!("answered {status}"),
            }
        }
        // The last batch may be kept in part; it is sent whole later.
        said.push(next + batch);
        let (rows, bytes) = stage.size("client_outgoing", "client_id", guest.id.get()).await;
        assert!(rows <= 256 && bytes <= 1 << 20, "{rows} rows, {bytes} bytes wait");
    }
    let (rows, bytes) = stage.size("runtime_command", "runtime_id", start.id.get()).await;
    assert!(
        rows <= 1_024 + 16 && bytes <= 9 << 20,
        "{rows} rows, {bytes} bytes wait"
    );
    assert!(
        said.iter().sum::<i64>() > 1_600,
        "that is more than the runtime's queue: {said:?}"
    );

    // What is kept goes on without another word of the players.
    let own = |command: &&RuntimeCommand| command.qualifier != "HANDLE_MESSAGE";
    let mut kept = rows - i64::try_from(game.say(&[]).await.iter().filter(own).count()).expect("a count");
    for guest in &guests {
        kept += stage.size("client_outgoing", "client_id", guest.id.get()).await.0;
    }
    let mut heard = game.hear(usize::try_from(kept).expect("a count")).await;
    for (guest, said) in guests.iter().zip(&said) {
        let from = heard.get(&guest.id).map_or(0, |numbers| numbers.len() as i64);
        assert!(from > 0 && from <= *said);
        let bytes = if guest.id == guests[0].id { 60_000 } else { 10 };
        eventually("the rest is taken", || async {
            (guest.say(from..*said, bytes).await == 200).then_some(())
        })
        .await;
        for (client, numbers) in game.hear(usize::try_from(said - from).expect("a count")).await {
            heard.entry(client).or_default().extend(numbers);
        }
        assert_eq!(heard[&guest.id], (0..*said).collect::<Vec<i64>>());
    }
    stage.installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_never_takes_anything_ends_and_its_players_are_placed_anew() {
    let stage = Stage::open(Options::default()).await;
    let start = stage.start().await;
    let keeper = stage.keep(&start);
    let game = stage.log_in(&start).await;
    game.stay().await;
    let first = stage.guest().await;
    eventually("the lobby", || async {
        (game_of(&first.read().await)? == start.id).then_some(())
    })
    .await;
    // As if it had been left alone with many who come and go.
    let mut tx = stage.installation.services[0]
        .app()
        .db
        .begin(start.id.get())
        .await
        .expect("a transaction");
    sqlx::query(
        "insert into runtime_command (runtime_id, seq, id, kind, body) \
         select $1, 1000000 + number, number, 'delete_client', '{\"client_id\":\"1\"}' from generate_series(1, 10000) as number",
    )
    .bind(start.id.get())
    .execute(&mut *tx)
    .await
    .expect("many commands");
    tx.commit().await.expect("a commit");
    let second = stage.guest().await;
    eventually("the runtime is gone", || async {
        let call = runtime::Interchange::default();
        let answer = game.interchange(call).await.err()?;
        assert_eq!(answer.status(), Some(404), "{answer}");
        Some(())
    })
    .await;
    keeper.stop().await;
    let next = stage.start().await;
    assert_ne!(next.id, start.id);
    stage.keep(&next);
    stage.log_in(&next).await.say(&[]).await;
    for guest in [&first, &second] {
        eventually("the other lobby", || async {
            (game_of(&guest.read().await)? == next.id).then_some(())
        })
        .await;
    }
    stage.installation.stop().await;
}

/// The runtime that the last assignment names.
fn game_of(messages: &[PlayerMessage]) -> Option<RuntimeId> {
    let assigned = messages
        .iter()
        .rfind(|message| message.qualifier == "RUNTIME_ASSIGNMENT_MESSAGE")?;
    let body: Value = serde_json::from_str(assigned.body.get()).expect("a body");
    body["runtime_id"].as_str()?.parse().ok().map(RuntimeId)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_player_who_takes_nothing_is_sent_no_more_and_others_are() {
    let stage = Stage::open(Options::default()).await;
    let start = stage.start().await;
    stage.keep(&start);
    let mut game = stage.log_in(&start).await;
    game.stay().await;
    let (idle, busy) = (stage.guest().await, stage.guest().await);
    for guest in [&idle, &busy] {
        guest.wait_for_the_lobby().await;
    }
    busy.take_all().await;
    let idle_messages = idle.read().await;
    for group in 0..12 {
        let commands: Vec<Value> = (group * 100..group * 100 + 100)
            .map(|number| respond(&idle, number, 10))
            .collect();
        game.say(&commands).await;
    }
    let (rows, _) = stage.size("client_message", "client_id", idle.id.get()).await;
    assert!((1_024..1_040).contains(&rows), "{rows} rows wait");
    // The platform's own are among the rows.
    let own = idle_messages.len();
    assert_eq!(rows, 1_024);
    let mut failed = 0;
    while failed < 1_200 - (1_024 - own) {
        let reply = game.take().await;
        assert!(!reply.is_empty(), "{failed} failures were told");
        failed += reply
            .iter()
            .filter(|command| command.qualifier == "COMMAND_FAILED")
            .count();
    }
    // The others of a broadcast hear it.
    game.say(&[json!({"qualifier": "BROADCAST_MESSAGE", "body": {"message": {"number": 7}}})])
        .await;
    assert_eq!(numbers(&busy.take_all().await), [7]);
    assert_eq!(stage.size("client_message", "client_id", idle.id.get()).await.0, rows);
    // What was written is there, in order, and afterwards there is room again.
    let kept = numbers(&idle.take_all().await);
    assert_eq!(kept, (0..kept.len()).collect::<Vec<_>>());
    game.say(&[respond(&idle, 9, 10)]).await;
    assert_eq!(numbers(&idle.take_all().await), [9]);

    // Bytes count as well, of what waits and of each reply.
    for number in 0..40 {
        game.say(&[respond(&idle, number, 200_000)]).await;
    }
    let (rows, bytes) = stage.size("client_message", "client_id", idle.id.get()).await;
    assert!(rows > 10 && bytes <= 4 << 20, "{rows} rows, {bytes} bytes wait");
    let reply: usize = idle.read().await.iter().map(|message| message.body.get().len()).sum();
    assert!(
        (1 << 20..(2 << 20) + 256 * 1_024).contains(&reply),
        "{reply} bytes in one reply"
    );
    assert_eq!(numbers(&idle.take_all().await).len(), rows as usize);
    stage.installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_to_a_runtime_have_a_bound_in_bytes() {
    let stage = Stage::open(Options::default()).await;
    let start = stage.start().await;
    stage.keep(&start);
    let mut game = stage.log_in(&start).await;
    game.stay().await;
    let guests = [
        stage.guest().await,
        stage.guest().await,
        stage.guest().await,
        stage.guest().await,
    ];
    for guest in &guests {
        eventually("it is kept", || async {
            (guest.say(0..15, 60_000).await == 200).then_some(())
        })
        .await;
    }
    let mut numbers = 0;
    while numbers < 60 {
        let reply = game.take().await;
        let bytes: usize = reply.iter().map(|command| command.body.get().len()).sum();
        assert!(bytes < (2 << 20) + 256 * 1_024, "{bytes} bytes in one reply");
        numbers += reply
            .iter()
            .filter(|command| command.qualifier == "HANDLE_MESSAGE")
            .count();
        if numbers == 0 && !reply.is_empty() {
            // Wait until there is much to say.
            eventually("all of it waits", || async {
                let (rows, _) = stage.size("runtime_command", "runtime_id", start.id.get()).await;
                (rows >= 60).then_some(())
            })
            .await;
        }
    }
    stage.installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_an_earlier_start_is_refused() {
    let stage = Stage::open(Options::default()).await;
    let (first, earlier) = {
        let start = stage.start().await;
        let game = stage.log_in(&start).await;
        (start, game)
    };
    let loading = |commands: Vec<Json>| runtime::Interchange {
        outgoing_commands: commands,
        ready: Some(false),
        ..runtime::Interchange::default()
    };
    earlier
        .interchange(loading(Vec::new()))
        .await
        .expect("it is the only start");
    // The machine says that it runs nothing: a new start is begun.
    let second = stage.start().await;
    assert_eq!((first.id, first.generation + 1), (second.id, second.generation));
    stage.keep(&second);
    let game = stage.log_in(&second).await;
    let stop = to_json(&json!({"qualifier": "STOP_MATCHMAKING", "body": {}}));
    for commands in [Vec::new(), vec![stop]] {
        match earlier.interchange(loading(commands)).await {
            Err(CallError::Refused { status, qualifier, .. }) => {
                assert_eq!(
                    (status, qualifier),
                    (401, omgservers_protocol::Qualifier::WrongCredentials)
                );
            }
            other => panic!("it was not refused: {other:?}"),
        }
    }
    let received = game.interchange(loading(Vec::new())).await.expect("the newest start");
    let commands: Vec<&str> = received.iter().map(|command| command.qualifier.as_str()).collect();
    assert_eq!(commands, ["INIT_RUNTIME"], "nothing of the earlier one was carried out");
    stage.installation.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_a_few_clients_of_a_stage_and_the_newest_stay() {
    let stage = Stage::open(Options {
        databases: 2,
        ..Options::default()
    })
    .await;
    let start = stage.start().await;
    stage.keep(&start);
    let mut game = stage.log_in(&start).await;
    game.stay().await;
    let user = stage.sign_up().await;
    let mut guests = Vec::new();
    for _ in 0..4 {
        guests.push(stage.join(&user).await);
    }
    let other = stage.guest().await;
    let ended = async |guest: &Guest| {
        let messages = guest.read().await;
        let last = messages
            .last()
            .filter(|message| message.qualifier == "DISCONNECTION_REASON_MESSAGE");
        last.map(|message| message.body.get().to_owned())
    };
    for guest in guests.iter().chain([&other]) {
        assert_eq!(ended(guest).await, None);
    }
    // Also one whose messages are not fetched is told.
    let commands: Vec<Value> = (0..1_024).map(|number| respond(&guests[0], number, 10)).collect();
    guests[0].wait_for_the_lobby().await;
    game.say(&commands).await;
    game.say(&commands[..100]).await;
    guests.push(stage.join(&user).await);
    let last = guests[0].take_all().await.pop().expect("messages");
    assert_eq!(
        (last.qualifier.as_str(), last.body.get()),
        ("DISCONNECTION_REASON_MESSAGE", r#"{"reason":"CLIENT_INACTIVITY"}"#)
    );
    for guest in guests[1..].iter().chain([&other]) {
        assert_eq!(ended(guest).await, None);
    }
    // The runtime hears that it left.
    let left = async {
        loop {
            let heard = game.take().await.iter().any(|command| {
                command.qualifier == "DELETE_CLIENT" && command.body.get().contains(&guests[0].id.to_string())
            });
            if heard {
                break;
            }
        }
    };
    tokio::time::timeout(harness::DEADLINE, left)
        .await
        .expect("the runtime is told");
    // Those that are gone by themselves make room: nobody is ended for them.
    for guest in &guests[2..] {
        game.say(&[json!({"qualifier": "KICK_CLIENT", "body": {"client_id": guest.id}})])
            .await;
    }
    for _ in 0..3 {
        guests.push(stage.join(&user).await);
    }
    assert_eq!(ended(&guests[1]).await, None, "four are living");
    // Many at once are not more.
    let crowd = futures_util::future::join_all((0..20).map(|_| stage.join(&user))).await;
    assert!(ended(&guests[1]).await.is_some());
    let app = stage.installation.services[0].app();
    let mut living = 0;
    for shard in app.db.shards() {
        let mut tx = app.db.begin_in(shard).await.expect("a transaction");
        let here: i64 = sqlx::query_scalar("select count(*) from client where deleted is null and id <> $1")
            .bind(other.id.get())
            .fetch_one(&mut *tx)
            .await
            .expect("a count");
        living += here;
    }
    assert_eq!(living, 4);
    assert_eq!(crowd.len(), 20);
    stage.installation.stop().await;
}
