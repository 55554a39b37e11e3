//! Logs and traces of the servers: their settings, their start, and the trace context in the headers of HTTP (W3C).
//!
//! Without a collector nothing of this is on the way of a request but one look at a flag.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter,
};
use tracing::{Span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::telemetry::{self, Logs, OWN};

/// Spans that wait for the collector; more are dropped.
const QUEUE_MAX: usize = 8_192;
/// Spans are gathered for so long.
const GATHER: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch.
const EXPORT: Duration = Duration::from_secs(5);
/// How long the last batch may take at a stop.
const LAST_EXPORT: Duration = Duration::from_secs(3);

static IS_ON: AtomicBool = AtomicBool::new(false);

/// What a server says about itself, and where.
#[derive(clap::Args, Debug, Clone)]
pub struct Settings {
    /// Logs every request, without its query.
    #[arg(long, env = "OMGSERVERS_LOGGING_ACCESS_LOGS_ENABLED", default_value_t = false, action = clap::ArgAction::Set)]
    pub access_logs_enabled: bool,
    /// Logs to the console.
    #[arg(long, env = "OMGSERVERS_LOGGING_CONSOLE_LOGS_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub console_logs_enabled: bool,
    /// Level of this project's logs: OFF, ERROR, WARN, INFO, DEBUG or TRACE.
    #[arg(long, env = "OMGSERVERS_LOGGING_APP_LOGS_LEVEL", default_value = "INFO", value_parser = telemetry::level)]
    pub app_logs_level: LevelFilter,
    /// Level of the logs of what carries HTTP.
    #[arg(long, env = "OMGSERVERS_LOGGING_TRAFFIC_LOGS_LEVEL", default_value = "INFO", value_parser = telemetry::level)]
    pub traffic_logs_level: LevelFilter,
    /// Level of everybody else's.
    #[arg(long, env = "OMGSERVERS_LOGGING_ROOT_LOGS_LEVEL", default_value = "WARN", value_parser = telemetry::level)]
    pub root_logs_level: LevelFilter,
    /// Logs are JSON lines.
    #[arg(long, env = "OMGSERVERS_LOGGING_JSON", default_value_t = false, action = clap::ArgAction::Set)]
    pub logs_json: bool,
    /// Sends no traces.
    #[arg(long, env = "OMGSERVERS_OTEL_DISABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub otel_disabled: bool,
    /// The collector that traces are sent to, by OTLP over gRPC.
    #[arg(long, env = "OMGSERVERS_OTEL_ENDPOINT", default_value = "http://collector:4317")]
    pub otel_endpoint: String,
}

/// Traces that are on their way to the collector, if there is one.
pub struct Traces(Option<SdkTracerProvider>);

/// Starts logs and traces under the server's name. Once per process, inside tokio.
pub fn start(settings: &Settings, application: &str) -> Result<Traces, String> {
    let logs = Logs {
        app: settings.app_logs_level,
        traffic: Some(settings.traffic_logs_level),
        root: settings.root_logs_level,
        json: settings.logs_json,
    };
    let filter = logs.filter();
    let is_shown = settings.console_logs_enabled;
    if settings.otel_disabled {
        let started = is_shown.then(|| {
            tracing_subscriber::registry()
                .with(filter)
                .with(logs.lines())
                .try_init()
        });
        started.transpose().map_err(|cause| cause.to_string())?;
        return Ok(Traces(None));
    }
    let provider = provider(&settings.otel_endpoint, application)?;
    let own = Targets::new().with_targets(OWN.map(|name| (name, LevelFilter::INFO)));
    let traces = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("omgservers"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(own);
    // Each has its own filter: quiet logs do not make traces incomplete.
    let started = tracing_subscriber::registry()
        .with(is_shown.then(|| logs.lines().with_filter(filter)))
        .with(traces)
        .try_init();
    started.map_err(|cause| cause.to_string())?;
    IS_ON.store(true, Ordering::Relaxed);
    Ok(Traces(Some(provider)))
}

impl Traces {
    /// Sends what waits, within seconds. Blocks.
    pub fn stop(self) {
        if let Some(provider) = self.0 {
            provider.shutdown_with_timeout(LAST_EXPORT).ok();
        }
    }
}

fn provider(endpoint: &str, application: &str) -> Result<SdkTracerProvider, String> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT)
        .build()
        .map_err(|cause| format!("OMGSERVERS_OTEL_ENDPOINT: `{endpoint}` cannot be used: {cause}"))?;
    let watched = Watched {
        exporter,
        is_away: AtomicBool::new(false),
    };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_MAX)
        .with_scheduled_delay(GATHER)
        .build();
    let resource = Resource::builder_empty()
        .with_service_name(application.to_owned())
        .with_attribute(KeyValue::new("service.namespace", "omgservers"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    Ok(SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_resource(resource.build())
        .with_span_processor(BatchSpanProcessor::builder(watched).with_batch_config(batches).build())
        .build())
}

/// Says once that the collector is away, and once that it is back.
#[derive(Debug)]
struct Watched {
    exporter: opentelemetry_otlp::SpanExporter,
    is_away: AtomicBool,
}

impl SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.exporter.export(batch).await;
        let was_away = self.is_away.swap(exported.is_err(), Ordering::Relaxed);
        match exported {
            Err(cause) if !was_away => {
                tracing::warn!(error = %cause, "the collector does not take traces; they are dropped until it does");
            }
            Ok(()) if was_away => tracing::info!("the collector takes traces again"),
            _ => {}
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Whether traces are sent. If not, nothing below needs to be called.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Makes a span that was not entered yet go on with the caller's trace.
pub fn go_on(span: &Span, headers: &HeaderMap) {
    let context = PROPAGATOR.extract_with_context(&Context::new(), &Headers(headers));
    span.set_parent(context).ok();
}

/// Tells whoever is called about the trace.
pub fn pass_on(span: &Span, headers: &mut HeaderMap) {
    PROPAGATOR.inject_context(&span.context(), &mut HeadersMut(headers));
}

/// Notes how a request was answered.
pub fn answered(span: &Span, status: u16) {
    span.set_attribute("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.set_status(Status::error("answered by an error"));
    }
}

static PROPAGATOR: LazyLock<TraceContextPropagator> = LazyLock::new(TraceContextPropagator::new);

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (key.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
            self.0.insert(name, value);
        }
    }
}
