//! The management port: whether the process lives, whether it can take connections, and its figures.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use omgservers_protocol::listen::{Bounds, Door};
use tokio::net::TcpListener;
use tower::Service as _;

use crate::Edge;

pub(crate) async fn serve(edge: Arc<Edge>, bounds: Bounds, listener: TcpListener) {
    let router = Router::new()
        .route("/health/live", get(|| async { "alive" }))
        .route("/health/ready", get(ready))
        // As supervisors of older installations ask.
        .route("/health", get(ready))
        .route("/metrics", get(metrics))
        .with_state(edge.clone());
    // Whoever asks here is one of ours.
    let door = Door::new(bounds, |_| true);
    let served = door.serve(listener, &edge.tasks, &edge.stopping, move |_, request| {
        let answered = router.clone().call(request);
        async move { answered.await.unwrap_or_else(|never| match never {}) }
    });
    served.await;
}

async fn ready(State(edge): State<Arc<Edge>>) -> impl IntoResponse {
    if edge.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if !edge.admission.has_keys() {
        (StatusCode::SERVICE_UNAVAILABLE, "waiting for the keys of the service")
    } else if !edge.service.has_token() {
        (StatusCode::SERVICE_UNAVAILABLE, "waiting for the login at the service")
    } else {
        (StatusCode::OK, "ready")
    }
}

async fn metrics(State(edge): State<Arc<Edge>>) -> impl IntoResponse {
    let format = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    edge.meters.set_connections(edge.door.open(), edge.door.turned_away());
    (format, edge.meters.render())
}
