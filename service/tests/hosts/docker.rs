//! Docker hosts, each test with an engine of its own.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use omgservers_service::host::{self, Host, HostError, HostEvent, HostSettings, Progress, RegistryLogin, Running};

use crate::{
    engine::{self, Engine},
    guest::{self, end_of, eventually, guest, names, next, settings, start, with},
};

const GRACE: Duration = Duration::from_secs(5);

/// An engine and the host behind it, in a folder that vanishes with them.
struct Bench {
    host: Arc<dyn Host>,
    engine: Engine,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        if !engine::wanted() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Self::around(Engine::start(folder.path()).unwrap(), folder))
    }

    /// `None` if this machine has no engine to offer.
    fn with(tls: bool, options: &[&str]) -> Option<Self> {
        if !engine::wanted() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Self::around(
            Engine::start_with(folder.path(), tls, options).unwrap(),
            folder,
        ))
    }

    fn around(engine: Engine, folder: tempfile::TempDir) -> Self {
        let host = host::connect(&engine.address(), &settings()).unwrap();
        Self { host, engine, folder }
    }

    fn inspect(&self, container: &str, field: &str) -> String {
        self.engine
            .docker(&["inspect", "-f", &format!("{{{{{field}}}}}"), container])
            .unwrap()
            .trim()
            .to_owned()
    }
}

#[tokio::test]
async fn a_runtime_starts_once_is_listed_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let host = &*bench.host;
    host.ping().await.unwrap();
    let spec = guest(1, "sleep");
    assert_eq!(
        start(host, &spec).await.unwrap(),
        [Progress::Pulling, Progress::Starting]
    );
    let first = bench.inspect("lobby_1", ".Id");
    assert_eq!(start(host, &spec).await.unwrap(), [], "it runs already");
    assert_eq!(bench.inspect("lobby_1", ".Id"), first);
    let expected = Running {
        name: "lobby_1".to_owned(),
        runtime_id: 1,
        generation: 1,
        exited: None,
    };
    assert_eq!(host.list().await.unwrap(), [expected]);
    let usage = host.usage().await.unwrap();
    assert!(
        usage.cpus > 0 && usage.memory_mb > 0 && usage.containers == 1,
        "{usage:?}"
    );

    let second = guest(2, "sleep");
    assert_eq!(
        start(host, &second).await.unwrap(),
        [Progress::Starting],
        "the image is there already"
    );
    host.stop("lobby_1", GRACE).await.unwrap();
    host.stop("lobby_1", GRACE)
        .await
        .expect("a second stop changes nothing");
    assert_eq!(names(host).await, ["lobby_2"]);
    assert_eq!(host.prune_networks().await.unwrap(), 0, "the bridge is in use");
    host.stop("lobby_2", GRACE).await.unwrap();
    assert_eq!(host.prune_networks().await.unwrap(), 1);
    assert_eq!(bench.engine.docker(&["ps", "-aq"]).unwrap(), "");
    assert!(!bench.engine.docker(&["network", "ls"]).unwrap().contains("omgtest"));
}

#[tokio::test]
async fn a_newer_generation_takes_over_and_an_older_one_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let host = &*bench.host;
    let mut spec = guest(1, "stubborn");
    start(host, &spec).await.unwrap();
    spec.generation = 2;
    start(host, &spec).await.unwrap();
    assert_eq!(host.list().await.unwrap()[0].generation, 2);
    spec.generation = 1;
    assert!(matches!(start(host, &spec).await, Err(HostError::Refused(_))));
    assert_eq!(host.list().await.unwrap()[0].generation, 2);

    // One that has stopped is made anew.
    bench.engine.docker(&["kill", "lobby_1"]).unwrap();
    assert_eq!(
        host.list().await.unwrap()[0].exited.as_deref(),
        Some("exited with code 137")
    );
    spec.generation = 2;
    start(host, &spec).await.unwrap();
    assert_eq!(host.list().await.unwrap()[0].exited, None);
    let asked = std::time::Instant::now();
    host.stop("lobby_1", Duration::from_secs(1)).await.unwrap();
    assert!(
        asked.elapsed() >= Duration::from_secs(1),
        "who does not listen gets the whole grace"
    );
    assert!(names(host).await.is_empty());
}

#[tokio::test]
async fn a_container_is_locked_down() {
    let Some(bench) = Bench::new() else { return };
    let mut events = bench.host.watch();
    start(&*bench.host, &guest(1, "confined")).await.unwrap();
    assert_eq!(
        end_of(&mut events, 1).await,
        "exited with code 0",
        "each bit names a lock that is open"
    );
    for (field, expected) in [
        (".HostConfig.Memory", "33554432"),
        (".HostConfig.MemorySwap", "33554432"),
        (".HostConfig.CpuQuota", "50000"),
        (".HostConfig.CpuPeriod", "100000"),
        (".HostConfig.PidsLimit", "512"),
        (".HostConfig.RestartPolicy.Name", ""),
        (".HostConfig.LogConfig.Config", "map[max-file:8 max-size:10m]"),
        ("index .Config.Labels \"com.omgservers.tenant\"", "7"),
        ("index .Config.Labels \"com.omgservers.runtime\"", "1"),
        ("index .Config.Labels \"com.omgservers.generation\"", "1"),
    ] {
        assert_eq!(bench.inspect("lobby_1", field), expected, "{field}");
    }
}

#[tokio::test]
async fn an_end_is_told_with_its_reason() {
    let Some(bench) = Bench::new() else { return };
    let host = &*bench.host;
    let mut events = host.watch();
    assert_eq!(next(&mut events).await, HostEvent::Connected);
    start(host, &with(guest(1, "exit"), "CODE", "3")).await.unwrap();
    let expected = HostEvent::Died {
        name: "lobby_1".to_owned(),
        runtime_id: 1,
        generation: 1,
        detail: "exited with code 3".to_owned(),
    };
    assert_eq!(next(&mut events).await, expected);
    // The daemon tells it a moment before it shows it.
    let shown = async || host.list().await.unwrap()[0].exited.as_deref() == Some("exited with code 3");
    eventually("the end to be listed", shown).await;
    start(host, &guest(2, "eat")).await.unwrap();
    assert_eq!(
        end_of(&mut events, 2).await,
        "exited with code 137: it ran out of memory"
    );
    for name in ["lobby_1", "lobby_2"] {
        host.stop(name, GRACE).await.unwrap();
    }
    assert!(names(host).await.is_empty());
}

#[tokio::test]
async fn a_runtime_reaches_the_service_but_no_other_runtime() {
    let Some(bench) = Bench::new() else { return };
    let host = &*bench.host;
    let mut events = host.watch();
    let service = TcpListener::bind((bench.engine.gateway(), 0)).unwrap();
    let service_port = service.local_addr().unwrap().port().to_string();
    let reach = |runtime, place: &str, port: &str| with(with(guest(runtime, "reach"), "PLACE", place), "PORT", port);
    start(host, &reach(1, &bench.engine.gateway().to_string(), &service_port))
        .await
        .unwrap();
    assert_eq!(
        end_of(&mut events, 1).await,
        "exited with code 0",
        "the service is not reached"
    );

    start(host, &with(guest(2, "listen"), "PORT", "4000")).await.unwrap();
    let neighbour = bench.inspect("lobby_2", "range .NetworkSettings.Networks}}{{.IPAddress}}{{end");
    start(host, &reach(3, &neighbour, "4000")).await.unwrap();
    assert_eq!(
        end_of(&mut events, 3).await,
        "exited with code 7",
        "a neighbour on the same bridge is reached"
    );
    let mut other_tenant = reach(4, &neighbour, "4000");
    other_tenant.network = "omgtest-8".to_owned();
    start(host, &other_tenant).await.unwrap();
    assert_eq!(
        end_of(&mut events, 4).await,
        "exited with code 7",
        "another tenant is reached"
    );
}

#[tokio::test]
async fn each_failure_says_whose_fault_it_is() {
    // Two networks of addresses: one is docker0's.
    let options = ["--default-address-pool", "base=172.30.0.0/23,size=24"];
    let Some(bench) = Bench::with(false, &options) else {
        return;
    };
    let host = &*bench.host;
    let mut spec = guest(1, "sleep");
    spec.image = "127.0.0.1:1/nothing/here:1".to_owned();
    let error = start(host, &spec).await.unwrap_err();
    assert!(
        matches!(&error, HostError::Image(text) if text.contains("127.0.0.1:1/nothing/here:1")),
        "{error:?}"
    );
    spec.image = "file:///not/there.tar".to_owned();
    assert!(matches!(start(host, &spec).await, Err(HostError::Image(_))));
    let missing_program = bench.folder.path().join("empty.tar");
    omgservers_service::archive::write(&missing_program, "empty:1", &["/nothing".to_owned()], &[], &[]).unwrap();
    spec.image = format!("file://{}", missing_program.display());
    let error = start(host, &spec).await.unwrap_err();
    assert!(matches!(&error, HostError::Image(_)), "{error:?}");
    assert!(names(host).await.is_empty(), "what did not start is not left behind");

    bench.engine.docker(&["network", "create", "foreign"]).ok();
    start(host, &guest(2, "sleep")).await.ok();
    let mut elsewhere = guest(3, "sleep");
    elsewhere.network = "omgtest-9".to_owned();
    let error = start(host, &elsewhere).await.unwrap_err();
    assert!(matches!(&error, HostError::Full(_)), "{error:?}");
    assert!(error.elsewhere_helps());

    // Somebody else's container is not touched, whatever its name.
    let tag = bench.engine.docker(&["images", "-q", "omgservers/archive"]).unwrap();
    let image = tag.lines().next().unwrap();
    bench
        .engine
        .docker(&["create", "--name", "lobby_5", "--network", "none", image])
        .unwrap();
    assert!(matches!(
        start(host, &guest(5, "sleep")).await,
        Err(HostError::Refused(_))
    ));
    assert!(matches!(host.stop("lobby_5", GRACE).await, Err(HostError::Refused(_))));
    assert!(!names(host).await.contains(&"lobby_5".to_owned()));
    assert_eq!(bench.inspect("lobby_5", ".State.Status"), "created");

    let nowhere = host::connect("unix:///not/there.sock", &settings()).unwrap();
    assert!(matches!(nowhere.ping().await, Err(HostError::Unreachable(_))));
    assert!(matches!(
        start(&*nowhere, &guest(6, "sleep")).await,
        Err(HostError::Unreachable(_))
    ));
}

#[tokio::test]
async fn unused_bridges_make_room_for_new_ones() {
    let options = ["--default-address-pool", "base=172.30.0.0/23,size=24"];
    let Some(bench) = Bench::with(false, &options) else {
        return;
    };
    let host = &*bench.host;
    for tenant in 1..=4 {
        let mut spec = guest(tenant, "sleep");
        spec.network = format!("omgtest-{tenant}");
        start(host, &spec).await.unwrap();
        host.stop(&spec.name, GRACE).await.unwrap();
    }
}

#[tokio::test]
async fn a_host_that_vanishes_or_hangs_is_lost_and_found_again() {
    let Some(mut bench) = Bench::new() else { return };
    let host = bench.host.clone();
    let mut events = host.watch();
    assert_eq!(next(&mut events).await, HostEvent::Connected);
    start(&*host, &guest(1, "sleep")).await.unwrap();

    bench.engine.freeze().unwrap();
    assert!(matches!(next(&mut events).await, HostEvent::Lost { .. }));
    bench.engine.thaw().unwrap();
    assert_eq!(next(&mut events).await, HostEvent::Connected);
    assert_eq!(host.list().await.unwrap()[0].exited, None);

    bench.engine.kill();
    assert!(matches!(next(&mut events).await, HostEvent::Lost { .. }));
    assert!(matches!(host.ping().await, Err(HostError::Unreachable(_))));
    bench.engine.restart().unwrap();
    while next(&mut events).await != HostEvent::Connected {}
    assert!(
        host.list().await.unwrap()[0].exited.is_some(),
        "what died with its host is listed as such"
    );
    start(&*host, &guest(1, "sleep")).await.unwrap();
    drop(events);
    host.stop("lobby_1", GRACE).await.unwrap();
}

#[tokio::test]
async fn a_host_behind_tls_wants_a_certificate() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let Some(bench) = Bench::with(true, &[]) else { return };
    let address = bench.engine.tcp_address();
    let trusted = HostSettings {
        certificates: Some(bench.engine.certificates()),
        connect_timeout: Duration::from_secs(1),
        ..settings()
    };
    let host = host::connect(&address, &trusted).unwrap();
    host.ping().await.unwrap();
    start(&*host, &guest(1, "sleep")).await.unwrap();
    host.stop("lobby_1", GRACE).await.unwrap();

    let plain = HostSettings {
        insecure: true,
        ..settings()
    };
    assert!(host::connect(&address, &plain).unwrap().ping().await.is_err());
    let stranger = tempfile::tempdir().unwrap();
    for file in ["ca.pem", "cert.pem"] {
        fs::copy(bench.engine.certificates().join(file), stranger.path().join(file)).unwrap();
    }
    let keyless = HostSettings {
        certificates: Some(stranger.path().to_owned()),
        ..settings()
    };
    assert!(
        matches!(host::connect(&address, &keyless).err(), Some(HostError::Refused(text)) if text.contains("key.pem"))
    );

    let mut events = host.watch();
    assert_eq!(next(&mut events).await, HostEvent::Connected);
    bench.engine.partition().unwrap();
    assert!(
        matches!(next(&mut events).await, HostEvent::Lost { .. }),
        "a cable that is cut says nothing"
    );
    assert!(matches!(host.ping().await, Err(HostError::Unreachable(_))));
    bench.engine.heal().unwrap();
    while next(&mut events).await != HostEvent::Connected {}
}

#[tokio::test]
async fn many_starts_at_once_share_one_image_and_one_bridge() {
    let Some(bench) = Bench::new() else { return };
    let host = bench.host.clone();
    let starts = (1..=6).map(|runtime| {
        let host = host.clone();
        tokio::spawn(async move { start(&*host, &guest::guest(runtime, "sleep")).await })
    });
    for started in starts.collect::<Vec<_>>() {
        started.await.unwrap().unwrap();
    }
    let mut twice = guest(7, "sleep");
    twice.generation = 3;
    let (one, other) = tokio::join!(start(&*host, &twice), start(&*host, &twice));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    assert_eq!(names(&*host).await.len(), 7);
    assert_eq!(
        bench
            .engine
            .docker(&["network", "ls", "-q", "-f", "name=omgtest"])
            .unwrap()
            .lines()
            .count(),
        1
    );
    eventually("all to run", async || host.usage().await.unwrap().containers == 7).await;
}

/// A registry with one user, `service` with the password `secret`. Ends with the test.
struct Registry {
    process: std::process::Child,
    address: String,
}

impl Registry {
    /// `None` if the machine has no registry to offer.
    fn start(folder: &Path, place: Ipv4Addr) -> Option<Self> {
        let port = TcpListener::bind((place, 0)).unwrap().local_addr().unwrap().port();
        let address = format!("{place}:{port}");
        let users = folder.join("users");
        fs::write(
            &users,
            "service:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n",
        )
        .unwrap();
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n\
             auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
            folder.join("registry").display(),
            users.display()
        );
        fs::write(folder.join("registry.yml"), config).unwrap();
        let log = fs::File::create(folder.join("registry.log")).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.join("registry.yml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        match process {
            Ok(process) => Some(Self { process, address }),
            Err(cause) => {
                engine::skip("registry", &cause.to_string());
                None
            }
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn an_image_is_pulled_by_name_with_the_registrys_password() {
    let Some(bench) = Bench::with(false, &["--insecure-registry", "10.232.0.0/16"]) else {
        return;
    };
    let Some(registry) = Registry::start(bench.folder.path(), bench.engine.gateway()) else {
        return;
    };
    let name = format!("{}/omgservers/1/2/universal:4", registry.address);
    bench
        .engine
        .docker(&["load", "-i", &guest::archive_path().to_string_lossy()])
        .unwrap();
    bench.engine.docker(&["tag", "omgservers/guest:1", &name]).unwrap();
    let config = bench.folder.path().join("client").display().to_string();
    let login = [
        "--config",
        &config,
        "login",
        "-u",
        "service",
        "-p",
        "secret",
        &registry.address,
    ];
    eventually("the registry", async || bench.engine.docker(&login).is_ok()).await;
    bench.engine.docker(&["--config", &config, "push", &name]).unwrap();
    bench.engine.docker(&["rmi", &name, "omgservers/guest:1"]).unwrap();

    let mut spec = guest(1, "sleep");
    spec.image = name;
    let error = start(&*bench.host, &spec).await.unwrap_err();
    assert!(matches!(error, HostError::Image(_)), "without the password: {error:?}");
    let login = RegistryLogin {
        address: registry.address.clone(),
        username: "service".to_owned(),
        password: "secret".to_owned(),
    };
    let known = HostSettings {
        registry: Some(login),
        ..settings()
    };
    let host = host::connect(&bench.engine.address(), &known).unwrap();
    assert_eq!(
        start(&*host, &spec).await.unwrap(),
        [Progress::Pulling, Progress::Starting]
    );
    host.stop("lobby_1", GRACE).await.unwrap();

    // Once pulled, it needs no registry.
    drop(registry);
    assert_eq!(start(&*host, &spec).await.unwrap(), [Progress::Starting]);
    host.stop("lobby_1", GRACE).await.unwrap();
}
