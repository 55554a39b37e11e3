//! The table of routes: thin handlers, one file per audience. Who is asking comes from a handler's arguments, the rest is
//! one call.

mod body;
mod control;
mod player;
mod runtime;

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodFilter, get, on};
use omgservers_protocol::dispatcher::KEYS_ROUTE;
use omgservers_protocol::{Call, admin, developer, dispatcher, player as play, runtime as run, support};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::services::{ServeDir, ServeFile};
use tower_http::set_header::SetResponseHeaderLayer;

use crate::App;
use crate::error::Error;

pub use body::Body;

/// Largest body of a request.
pub const BODY_MAX: usize = 10 * 1_024 * 1_024;
/// Longest time for a reply; a held interchange takes up to 20 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(45);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Collects operations, and remembers their addresses for the test that walks over them.
struct Routes {
    router: Router<App>,
    addresses: Vec<&'static str>,
}

impl Routes {
    fn call<C: Call, H: Handler<T, App>, T: 'static>(mut self, handler: H) -> Self {
        // PUT is what the first command-line tool sends.
        let filter = MethodFilter::POST.or(MethodFilter::PUT);
        self.router = self.router.route(C::ROUTE, on(filter, handler).fallback(wrong_method));
        self.addresses.push(C::ROUTE);
        self
    }
}

fn operations() -> Routes {
    Routes {
        router: Router::new(),
        addresses: Vec::new(),
    }
    .call::<admin::CreateToken, _, _>(control::admin_token)
    .call::<admin::GenerateId, _, _>(control::generate_id)
    .call::<support::CreateToken, _, _>(control::support_token)
    .call::<support::CreateTenant, _, _>(control::create_tenant)
    .call::<support::CreateTenantAlias, _, _>(control::create_tenant_alias)
    .call::<support::DeleteTenant, _, _>(control::delete_tenant)
    .call::<support::CreateDeveloper, _, _>(control::create_developer)
    .call::<support::CreateTenantPermissions, _, _>(control::create_tenant_permissions)
    .call::<developer::CreateToken, _, _>(control::developer_token)
    .call::<developer::GetTenantDetails, _, _>(control::tenant_details)
    .call::<developer::CreateProject, _, _>(control::create_project)
    .call::<developer::CreateProjectAlias, _, _>(control::create_project_alias)
    .call::<developer::GetProjectDetails, _, _>(control::project_details)
    .call::<developer::DeleteProject, _, _>(control::delete_project)
    .call::<developer::CreateStage, _, _>(control::create_stage)
    .call::<developer::CreateStageAlias, _, _>(control::create_stage_alias)
    .call::<developer::GetStageDetails, _, _>(control::stage_details)
    .call::<developer::DeleteStage, _, _>(control::delete_stage)
    .call::<developer::CreateVersion, _, _>(control::create_version)
    .call::<developer::GetVersionDetails, _, _>(control::version_details)
    .call::<developer::DeleteVersion, _, _>(control::delete_version)
    .call::<developer::CreateImage, _, _>(control::create_image)
    .call::<developer::DeployVersion, _, _>(control::deploy_version)
    .call::<developer::GetDeploymentDetails, _, _>(control::deployment_details)
    .call::<developer::DeleteDeployment, _, _>(control::delete_deployment)
    .call::<play::PingService, _, _>(player::ping)
    .call::<play::CreateUser, _, _>(player::create_user)
    .call::<play::CreateToken, _, _>(player::create_token)
    .call::<play::CreateClient, _, _>(player::create_client)
    .call::<play::Interchange, _, _>(player::interchange)
    .call::<play::RenewConnection, _, _>(player::renew_connection)
    .call::<run::CreateToken, _, _>(runtime::create_token)
    .call::<run::Interchange, _, _>(runtime::interchange)
    .call::<dispatcher::CreateToken, _, _>(runtime::dispatcher_token)
    .call::<dispatcher::Report, _, _>(runtime::report)
}

/// The address of every operation, for the test that tries each as everybody.
pub fn addresses() -> Vec<&'static str> {
    operations().addresses
}

pub fn router(app: App) -> Router {
    let mut router = operations().router.route(KEYS_ROUTE, get(runtime::keys));
    if let Some(folder) = &app.config.web_directory {
        let page = SetResponseHeaderLayer::if_not_present(
            header::CACHE_CONTROL,
            axum::http::HeaderValue::from_static("no-cache"),
        );
        let files = ServeDir::new(folder).fallback(ServeFile::new(folder.join("index.html")));
        router = router
            .nest_service("/play/", tower::ServiceBuilder::new().layer(page).service(files))
            .route("/play", get(|| async { Redirect::permanent("/play/") }))
            .route("/", get(|| async { Redirect::temporary("/play/") }));
    }
    router
        .fallback(|| async { Error::NoRoute })
        .layer(CorsLayer::very_permissive().max_age(Duration::from_secs(3_600)))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(middleware::from_fn(limit_time))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            Error::Internal(anyhow::anyhow!("a handler panicked")).into_response()
        }))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(middleware::from_fn(observe))
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .with_state(app)
}

async fn wrong_method() -> Error {
    Error::WrongMethod
}

async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REPLY_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::Unavailable("the answer took too long, try again").into_response(),
    }
}

/// Counts requests and lets logs of one request be found together.
async fn observe(request: Request, next: Next) -> Response {
    use tracing::Instrument as _;
    let path = request
        .extensions()
        .get::<axum::extract::MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let operation = path
        .as_deref()
        .and_then(|path| path.rsplit('/').next())
        .unwrap_or("other")
        .to_owned();
    let id = request
        .headers()
        .get(&REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let span = tracing::info_span!("request", request.id = id, operation);
    let begun = std::time::Instant::now();
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    metrics::counter!("omgservers_requests_total", "operation" => operation.clone(), "status" => status.as_str().to_owned()).increment(1);
    if !operation.ends_with("interchange") {
        metrics::histogram!("omgservers_request_seconds", "operation" => operation)
            .record(begun.elapsed().as_secs_f64());
    }
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        span.in_scope(|| tracing::error!(duration_ms = begun.elapsed().as_millis(), "answered 500"));
    }
    response
}
