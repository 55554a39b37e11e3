//! The management port: health for supervisors, metrics for Prometheus.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use omgservers_protocol::listen::Door;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::App;

pub async fn serve(
    app: &App,
    door: Arc<Door>,
    stop: CancellationToken,
) -> anyhow::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let (address, port) = (app.config.management_address, app.config.management_port);
    let listener = TcpListener::bind((address, port))
        .await
        .with_context(|| format!("cannot listen on {address}:{port}"))?;
    let address = listener.local_addr()?;
    metrics_handle();
    let router = Router::new()
        .route("/health/live", get(|| async { "live" }))
        .route("/health/ready", get(ready))
        // As supervisors of older installations ask.
        .route("/health", get(ready))
        .route("/metrics", get(move || async move { figures(&door) }))
        .with_state(app.clone());
    // Whoever asks here is one of ours.
    let entrance = Door::new(app.config.bounds.clone(), |_| true);
    let task = tokio::spawn(crate::answer(router, listener, entrance, stop));
    Ok((address, task))
}

fn figures(door: &Door) -> String {
    gauge!("omgservers_connections").set(door.open() as f64);
    counter!("omgservers_turned_away_connections_total").absolute(door.turned_away());
    metrics_handle().map(PrometheusHandle::render).unwrap_or_default()
}

/// Metrics are one per process, however many services run in it.
fn metrics_handle() -> Option<&'static PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    HANDLE
        .get_or_init(|| PrometheusBuilder::new().install_recorder().ok())
        .as_ref()
}

/// Ready when every database answers.
async fn ready(State(app): State<App>) -> (StatusCode, &'static str) {
    if app.stopping.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    for database in 0..app.db.databases() {
        let asked = sqlx::query("select 1").execute(app.db.system(database));
        if !matches!(tokio::time::timeout(Duration::from_secs(2), asked).await, Ok(Ok(_))) {
            return (StatusCode::SERVICE_UNAVAILABLE, "a database does not answer");
        }
    }
    (StatusCode::OK, "ready")
}
