//! `developer run`: for a while the game servers of a stage are processes of this machine. The service says what should
//! run, we run it, and start everything anew when the program was built again.

mod children;
mod watch;

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use omgservers_protocol::config::VersionConfig;
use omgservers_protocol::developer::{
    CreateImage, CreateVersion, DeployVersion, GetStageDetails, ImageQualifier, InterchangeLocalRun,
    InterchangedLocalRun, LocalEnd, LocalStart, StartLocalRun, StopLocalRun,
};
use omgservers_protocol::id::LocalRunId;
use omgservers_protocol::text::{TEXT_CONSTRAINT, Text};
use tokio::time::Instant;

use self::children::{Children, End, Program, name, start_of};
use self::watch::{Fingerprint, Watch};
use crate::arguments::Stage;
use crate::arguments::developer::Run;
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::input;
use crate::signals::Signals;
use crate::state::shell_word;
use omgservers_protocol::client::{CallError, Client};

const ROLE: Role = Role::Developer;

/// How long the service may hold its reply until something else should run.
const WAIT_MS: u64 = 10_000;

/// A service that answers at once is not asked more often than that, unless there is something to tell.
const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the program is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// While nobody answers.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);

/// The last word to the service is not worth more patience.
const GOODBYE_WITHIN: Duration = Duration::from_secs(5);

/// The image of a version that runs here and nowhere else.
const LOCAL_IMAGE: &str = "local://";

pub(crate) async fn run(context: &mut Context, arguments: Run) -> Result {
    let Run {
        words,
        config,
        arguments,
    } = arguments;
    let (stage, program) = stage_and_program(context, words)?;
    let config = config
        .map(|file| input::version_config(&file, context.output))
        .transpose()?;
    let path = find(&program)?;
    let mut signals = Signals::listen()?;
    let output = context.output;
    let place = format!("{}/{}/{}", stage.tenant, stage.project, stage.stage);

    let run_id = start(context, &stage).await?;
    output.note(format_args!(
        "The game servers of {place} run here: {}",
        program.display()
    ));
    let client = context.client_of(ROLE)?;
    let mut session = Session {
        watch: Watch::new(Fingerprint::of(&path)),
        children: Children::new(
            Program {
                path,
                arguments,
                service_url: client.base().to_owned(),
            },
            output,
        ),
        client,
        context,
        stage,
        program,
        run_id,
        ended: Vec::new(),
        told_lost: HashSet::new(),
        restart: false,
        retry_delay: RETRY_DELAY_MIN,
        is_deaf: false,
    };
    let result = async {
        tokio::select! {
            deployed = provide_deployment(session.context, &session.stage, config) => deployed?,
            () = signals.next() => return Ok(()),
        }
        let address = session.context.address()?;
        output.note(format_args!(
            "Players come in at {address} to {place}. Build the program again and it is started anew; Ctrl-C ends it."
        ));
        session.keep(&mut signals).await
    }
    .await;
    session.stop(&mut signals).await;
    result
}

/// The given stage, or the stored one when only a program is given.
fn stage_and_program(context: &Context, words: Vec<OsString>) -> Result<(Stage, PathBuf)> {
    let name = |word: &OsString| {
        let name = word.to_str().and_then(Text::new);
        name.ok_or_else(|| Failure::usage(format!("`{}`: {TEXT_CONSTRAINT}", word.display())))
    };
    let stored = |variable: &str| {
        context.state.get(variable).and_then(Text::new).ok_or_else(|| {
            Failure::refused(format!("no {} is stored", variable.to_lowercase())).hint(
                "`omgctl developer init TENANT PROJECT` stores tenant, project and stage; \
                 `omgctl developer run TENANT PROJECT STAGE PROGRAM` names them",
            )
        })
    };
    let (tenant, project, stage, program) = match words.as_slice() {
        [program] => (stored("TENANT")?, stored("PROJECT")?, stored("STAGE")?, program),
        [tenant, project, stage, program] => (name(tenant)?, name(project)?, name(stage)?, program),
        _ => {
            return Err(Failure::usage("expected PROGRAM or TENANT PROJECT STAGE PROGRAM")
                .hint("arguments of the program stand behind `--`"));
        }
    };
    Ok((Stage { tenant, project, stage }, PathBuf::from(program)))
}

/// Where the program is, if it can be run.
fn find(program: &Path) -> Result<PathBuf> {
    let failed = |why: String| Failure::usage(format!("cannot run `{}`: {why}", program.display()));
    // Not resolved any further: a link that is put to another build is a change.
    let path = std::path::absolute(program).map_err(|cause| failed(cause.to_string()))?;
    let file = std::fs::metadata(&path).map_err(|cause| failed(cause.to_string()))?;
    if !file.is_file() {
        return Err(failed("it is not a program".to_owned()));
    }
    if file.permissions().mode() & 0o111 == 0 {
        let hint = format!("`chmod +x {}` makes it one", shell_word(&program.to_string_lossy()));
        return Err(failed("it is not marked as a program".to_owned()).hint(hint));
    }
    Ok(path)
}

async fn start(context: &mut Context, stage: &Stage) -> Result<LocalRunId> {
    let call = StartLocalRun {
        tenant: stage.tenant.clone(),
        project: stage.project.clone(),
        stage: stage.stage.clone(),
    };
    Ok(context.send(ROLE, &call).await?.run_id)
}

/// Deploys a version that runs here, if a config was given or nothing is deployed.
async fn provide_deployment(context: &mut Context, stage: &Stage, config: Option<VersionConfig>) -> Result {
    let Stage { tenant, project, stage } = stage;
    let call = GetStageDetails {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
    };
    let config = match config {
        Some(config) => config,
        None if !context.send(ROLE, &call).await?.details.deployments.is_empty() => return Ok(()),
        None => VersionConfig {
            modes: Vec::new(),
            user_data: None,
        },
    };
    let call = CreateVersion {
        tenant: tenant.clone(),
        project: project.clone(),
        config,
    };
    let version = context.send(ROLE, &call).await?.version_id;
    let call = CreateImage {
        tenant: tenant.clone(),
        project: project.clone(),
        version,
        qualifier: ImageQualifier::Universal,
        image: LOCAL_IMAGE.to_owned(),
    };
    context.send(ROLE, &call).await?;
    let call = DeployVersion {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        version_id: version,
        config: None,
    };
    let deployment = context.send(ROLE, &call).await?.deployment_id;
    context.output.note(format_args!(
        "Version {version} is deployed there as deployment {deployment}."
    ));
    Ok(())
}

type Answer = std::result::Result<InterchangedLocalRun, CallError>;

struct Session<'a> {
    context: &'a mut Context,
    client: Client,
    stage: Stage,
    /// As it was typed.
    program: PathBuf,
    run_id: LocalRunId,
    children: Children,
    watch: Watch,
    /// What ended by itself and was not told yet.
    ended: Vec<LocalEnd>,
    /// Starts that never reached us, told as ended once.
    told_lost: HashSet<LocalStart>,
    /// The program has changed, and the service does not know it yet.
    restart: bool,
    retry_delay: Duration,
    is_deaf: bool,
}

impl Session<'_> {
    /// Runs what should run, until somebody asks to stop.
    async fn keep(&mut self, signals: &mut Signals) -> Result {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut asking: Option<BoxFuture<'static, Answer>> = None;
        let mut ask_at = Instant::now();
        loop {
            // A new program is asked for when the old one is gone.
            let may_ask = asking.is_none() && (!self.restart || self.children.is_empty());
            tokio::select! {
                () = signals.next() => return Ok(()),
                answer = async { asking.as_mut().expect("it is only polled when it is there").await }, if asking.is_some() => {
                    asking = None;
                    ask_at = Instant::now() + self.handle(answer).await?;
                }
                () = tokio::time::sleep_until(ask_at), if may_ask => asking = Some(self.ask()),
                end = self.children.next_end() => {
                    if self.miss(end) {
                        // The service hears of it now, not when it next has something to say.
                        (asking, ask_at) = (None, Instant::now());
                    }
                }
                _ = look.tick() => {
                    if self.watch.look(Fingerprint::of(&self.children.program().path)) {
                        self.context.output.note(format_args!("{} has changed: starting everything anew", self.program.display()));
                        self.children.stop_others(&[]);
                        self.restart = true;
                        (asking, ask_at) = (None, Instant::now());
                    }
                }
            }
        }
    }

    fn ask(&self) -> BoxFuture<'static, Answer> {
        let call = InterchangeLocalRun {
            tenant: self.stage.tenant.clone(),
            run_id: self.run_id,
            running: self.children.running(),
            ended: self.ended.clone(),
            restart: self.restart,
            wait_ms: Some(WAIT_MS),
        };
        let client = self.client.clone();
        // Not written into the log of requests: there is one every few seconds, with passwords in the replies.
        Box::pin(async move { client.send(&call).await })
    }

    /// Does what the service said, and tells how long to wait before asking again.
    async fn handle(&mut self, answer: Answer) -> Result<Duration> {
        let output = self.context.output;
        let cause = match answer {
            Ok(reply) => {
                if std::mem::take(&mut self.is_deaf) {
                    output.note("The service answers again.");
                }
                self.retry_delay = RETRY_DELAY_MIN;
                self.ended.clear();
                self.restart = false;
                self.apply(&reply);
                return Ok(if self.ended.is_empty() {
                    ASK_INTERVAL
                } else {
                    Duration::ZERO
                });
            }
            Err(cause) => cause,
        };
        let done = match cause.status() {
            None | Some(500..) => return Ok(self.wait_for_service(&cause)),
            Some(404) => {
                output.note("The service has forgotten this run, so it is started again.");
                self.start_again().await
            }
            Some(401) => self.log_in_again().await,
            Some(_) => Err(Failure::refused(format!("the service refuses this run: {cause}"))),
        };
        match done {
            Ok(()) => Ok(ASK_INTERVAL),
            Err(failure) if failure.is_silence() => Ok(self.wait_for_service(&failure.message)),
            Err(failure) => Err(failure),
        }
    }

    async fn start_again(&mut self) -> Result {
        self.run_id = start(self.context, &self.stage).await?;
        // The token may have been replaced for it.
        self.client = self.context.client_of(ROLE)?;
        Ok(())
    }

    async fn log_in_again(&mut self) -> Result {
        self.context.log_in_again(ROLE).await?;
        self.client = self.context.client_of(ROLE)?;
        Ok(())
    }

    /// Nobody answers: how long to wait this time.
    fn wait_for_service(&mut self, why: &dyn std::fmt::Display) -> Duration {
        let delay = self.retry_delay;
        self.retry_delay = (delay * 2).min(RETRY_DELAY_MAX);
        if !std::mem::replace(&mut self.is_deaf, true) {
            self.context.output.warning(format_args!(
                "{why}; what runs here goes on, and the service is asked again"
            ));
        }
        delay
    }

    fn apply(&mut self, reply: &InterchangedLocalRun) {
        let output = self.context.output;
        let wanted: Vec<_> = reply.runtimes.iter().map(start_of).collect();
        for name in self.children.stop_others(&wanted) {
            output.note(format_args!("{name} is no longer needed and stops"));
        }
        self.told_lost.retain(|start| wanted.contains(start));
        for runtime in &reply.runtimes {
            let start = start_of(runtime);
            if self.children.has(start) {
                continue;
            }
            let lost = match &runtime.environment {
                Some(environment) => match self.children.start(runtime, environment) {
                    Ok(name) => {
                        output.note(format_args!("{name} is started"));
                        continue;
                    }
                    Err(cause) => format!("{cause:#}"),
                },
                // The reply that told how to start it got lost on its way.
                None => "its start was lost".to_owned(),
            };
            if self.told_lost.insert(start) {
                output.warning(format_args!("{} does not run: {lost}", name(runtime)));
                self.ended.push(end_of(start, lost));
            }
        }
    }

    /// Whether the service should hear of it.
    fn miss(&mut self, end: End) -> bool {
        let output = self.context.output;
        if end.by_itself {
            output.warning(format_args!("{} ended by itself: {}", end.name, end.detail));
            // It is not lost should the service name it once more, before it has heard of the end.
            self.told_lost.insert(end.start);
            self.ended.push(end_of(end.start, end.detail));
        } else {
            output.note(format_args!("{} is stopped", end.name));
        }
        end.by_itself
    }

    /// Ends everything that runs here, and gives the stage back.
    async fn stop(mut self, signals: &mut Signals) {
        let output = self.context.output;
        self.children.stop_others(&[]);
        while !self.children.is_empty() {
            tokio::select! {
                end = self.children.next_end() => output.note(format_args!("{} is stopped", end.name)),
                () = signals.next() => self.children.kill(),
            }
        }
        let call = StopLocalRun {
            tenant: self.stage.tenant.clone(),
            run_id: self.run_id,
        };
        match tokio::time::timeout(GOODBYE_WITHIN, self.context.send(ROLE, &call)).await {
            Ok(Ok(_)) => output.note("The game servers of the stage run on the hosts again."),
            _ => output.warning("the service did not hear that this run is over; it will notice by itself"),
        }
    }
}

fn end_of(start: LocalStart, detail: String) -> LocalEnd {
    LocalEnd {
        runtime_id: start.runtime_id,
        generation: start.generation,
        detail,
    }
}
