//! The table of routes: thin handlers, one file per audience. Who is asking comes from a handler's arguments, the rest is
//! one call.

mod admin;
mod body;
mod cors;
mod developer;
mod openapi;
mod player;
mod runtime;
mod support;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Bytes, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodFilter, get, on};
use axum::{Extension, Router};
use futures_util::{Stream, StreamExt as _};
use omgservers_protocol::dispatcher::KEYS_ROUTE;
use omgservers_protocol::{
    Call, admin as adm, developer as dev, dispatcher, player as play, runtime as run, support as sup, trace,
};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::services::{ServeDir, ServeFile};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::ToSchema;

use crate::App;
use crate::error::Error;
use crate::limits;
use crate::principal::HidesOthers;

pub use body::Body;
pub use cors::Origins;
pub use openapi::ROUTE as OPENAPI_ROUTE;

/// Largest body of a request.
pub const BODY_MAX: usize = 10 * 1_024 * 1_024;
/// What a form adds to the archive in it.
const UPLOAD_MARGIN: usize = 64 * 1_024;
/// Longest time for a reply; a held interchange takes up to 20 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(45);
/// The same while an archive is being uploaded, however slow the line.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// So much of a refused body is read, and for so long.
const READ_AWAY: (usize, Duration) = (64 << 20, Duration::from_secs(10));
/// The same of an archive. Whoever sends a far too long one is a developer who should hear of it.
const READ_UPLOAD_AWAY: (usize, Duration) = (1 << 30, Duration::from_secs(120));
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Collects operations, and remembers their addresses for the test that walks over them.
struct Routes {
    router: Router<App>,
    addresses: Vec<&'static str>,
    document: openapi::Document,
}

impl Routes {
    /// An operation for those who have a token.
    fn call<C: Call + ToSchema, H: Handler<T, App>, T: 'static>(self, handler: H) -> Self
    where
        C::Reply: ToSchema,
    {
        self.add::<C, H, T>(false, handler)
    }

    /// The same for what the first API did not have, where [others are hidden](crate::principal::Actor::hides_others).
    fn newer<C: Call + ToSchema, H: Handler<T, App>, T: 'static>(self, handler: H) -> Self
    where
        C::Reply: ToSchema,
    {
        self.call::<C, _, _>(handler.layer(Extension(HidesOthers)))
    }

    /// An operation for everybody.
    fn open<C: Call + ToSchema, H: Handler<T, App>, T: 'static>(self, handler: H) -> Self
    where
        C::Reply: ToSchema,
    {
        self.add::<C, H, T>(true, handler)
    }

    fn add<C: Call + ToSchema, H: Handler<T, App>, T: 'static>(mut self, is_open: bool, handler: H) -> Self
    where
        C::Reply: ToSchema,
    {
        // PUT is what the first command-line tool sends.
        let filter = MethodFilter::POST.or(MethodFilter::PUT);
        self.router = self.router.route(C::ROUTE, on(filter, handler).fallback(wrong_method));
        self.addresses.push(C::ROUTE);
        self.document.add::<C>(is_open);
        self
    }
}

fn operations() -> Routes {
    Routes {
        router: Router::new(),
        addresses: Vec::new(),
        document: openapi::Document::default(),
    }
    .open::<adm::CreateToken, _, _>(admin::create_token)
    .call::<adm::RenewToken, _, _>(admin::renew_token)
    .call::<adm::ChangePassword, _, _>(admin::change_password)
    .call::<adm::ResetPassword, _, _>(admin::reset_password)
    .call::<adm::GenerateId, _, _>(admin::generate_id)
    .call::<adm::BcryptHash, _, _>(admin::bcrypt_hash)
    .call::<adm::CalculateShard, _, _>(admin::calculate_shard)
    .call::<adm::PingDockerHost, _, _>(admin::ping_docker_host)
    .call::<adm::ListShards, _, _>(admin::list_shards)
    .call::<adm::ListInstances, _, _>(admin::list_instances)
    .call::<adm::ListHosts, _, _>(admin::list_hosts)
    .call::<adm::ListUsers, _, _>(admin::list_users)
    .call::<adm::ListAuditRecords, _, _>(admin::list_audit_records)
    .call::<adm::ListFailedJobs, _, _>(admin::list_failed_jobs)
    .open::<sup::CreateToken, _, _>(support::create_token)
    .newer::<sup::RenewToken, _, _>(support::renew_token)
    .newer::<sup::ChangePassword, _, _>(support::change_password)
    .call::<sup::CreateTenant, _, _>(support::create_tenant)
    .call::<sup::CreateTenantAlias, _, _>(support::create_tenant_alias)
    .call::<sup::DeleteTenant, _, _>(support::delete_tenant)
    .newer::<sup::ListTenants, _, _>(support::list_tenants)
    .newer::<sup::SetTenantQuotas, _, _>(support::set_tenant_quotas)
    .newer::<sup::GetTenantQuotas, _, _>(support::get_tenant_quotas)
    .newer::<sup::ListUsage, _, _>(support::list_usage)
    .call::<sup::CreateProject, _, _>(support::create_project)
    .call::<sup::CreateProjectAlias, _, _>(support::create_project_alias)
    .call::<sup::DeleteProject, _, _>(support::delete_project)
    .newer::<sup::ListProjects, _, _>(support::list_projects)
    .call::<sup::CreateStage, _, _>(support::create_stage)
    .call::<sup::CreateStageAlias, _, _>(support::create_stage_alias)
    .call::<sup::DeleteStage, _, _>(support::delete_stage)
    .newer::<sup::ListStages, _, _>(support::list_stages)
    .call::<sup::CreateDeveloper, _, _>(support::create_developer)
    .call::<sup::CreateDeveloperAlias, _, _>(support::create_developer_alias)
    .newer::<sup::ResetDeveloperPassword, _, _>(support::reset_developer_password)
    .call::<sup::DeleteDeveloper, _, _>(support::delete_developer)
    .newer::<sup::ListDevelopers, _, _>(support::list_developers)
    .call::<sup::CreateTenantPermissions, _, _>(support::create_tenant_permissions)
    .call::<sup::DeleteTenantPermissions, _, _>(support::delete_tenant_permissions)
    .call::<sup::CreateProjectPermissions, _, _>(support::create_project_permissions)
    .call::<sup::DeleteProjectPermissions, _, _>(support::delete_project_permissions)
    .call::<sup::CreateStagePermissions, _, _>(support::create_stage_permissions)
    .call::<sup::DeleteStagePermissions, _, _>(support::delete_stage_permissions)
    .newer::<sup::ListPermissions, _, _>(support::list_permissions)
    .open::<dev::CreateToken, _, _>(developer::create_token)
    .newer::<dev::RenewToken, _, _>(developer::renew_token)
    .newer::<dev::ChangePassword, _, _>(developer::change_password)
    .newer::<dev::CreateApiKey, _, _>(developer::create_api_key)
    .newer::<dev::DeleteApiKey, _, _>(developer::delete_api_key)
    .newer::<dev::ListApiKeys, _, _>(developer::list_api_keys)
    .newer::<dev::ListTenants, _, _>(developer::list_tenants)
    .newer::<dev::GetTenantQuotas, _, _>(developer::get_tenant_quotas)
    .newer::<dev::ListUsage, _, _>(developer::list_usage)
    .newer::<dev::ListAuditRecords, _, _>(developer::list_audit_records)
    .newer::<dev::ListPermissions, _, _>(developer::list_permissions)
    .call::<dev::GetTenantDetails, _, _>(developer::tenant_details)
    .call::<dev::CreateProject, _, _>(developer::create_project)
    .call::<dev::CreateProjectAlias, _, _>(developer::create_project_alias)
    .call::<dev::GetProjectDetails, _, _>(developer::project_details)
    .call::<dev::DeleteProject, _, _>(developer::delete_project)
    .newer::<dev::ListProjects, _, _>(developer::list_projects)
    .call::<dev::CreateStage, _, _>(developer::create_stage)
    .call::<dev::CreateStageAlias, _, _>(developer::create_stage_alias)
    .call::<dev::GetStageDetails, _, _>(developer::stage_details)
    .call::<dev::DeleteStage, _, _>(developer::delete_stage)
    .newer::<dev::ListStages, _, _>(developer::list_stages)
    .newer::<dev::SetStageMaintenance, _, _>(developer::set_stage_maintenance)
    .newer::<dev::SetStageVariable, _, _>(developer::set_stage_variable)
    .newer::<dev::DeleteStageVariable, _, _>(developer::delete_stage_variable)
    .newer::<dev::ListStageVariables, _, _>(developer::list_stage_variables)
    .newer::<dev::StartLocalRun, _, _>(developer::start_local_run)
    .newer::<dev::InterchangeLocalRun, _, _>(developer::interchange_local_run)
    .newer::<dev::StopLocalRun, _, _>(developer::stop_local_run)
    .call::<dev::CreateVersion, _, _>(developer::create_version)
    .call::<dev::GetVersionDetails, _, _>(developer::version_details)
    .newer::<dev::GetVersionConfig, _, _>(developer::version_config)
    .call::<dev::DeleteVersion, _, _>(developer::delete_version)
    .newer::<dev::ListVersions, _, _>(developer::list_versions)
    .call::<dev::UploadFilesArchive, _, _>(developer::upload_files_archive)
    .newer::<dev::ListFilesArchives, _, _>(developer::list_files_archives)
    .newer::<dev::CreateImage, _, _>(developer::create_image)
    .newer::<dev::ListImages, _, _>(developer::list_images)
    .call::<dev::DeployVersion, _, _>(developer::deploy_version)
    .call::<dev::GetDeploymentDetails, _, _>(developer::deployment_details)
    .newer::<dev::GetDeploymentConfig, _, _>(developer::deployment_config)
    .call::<dev::DeleteDeployment, _, _>(developer::delete_deployment)
    .newer::<dev::ListDeployments, _, _>(developer::list_deployments)
    .call::<dev::CreateLobbyRequest, _, _>(developer::create_lobby_request)
    .call::<dev::DeleteLobby, _, _>(developer::delete_lobby)
    .newer::<dev::ListLobbies, _, _>(developer::list_lobbies)
    .call::<dev::CreateMatchmakerRequest, _, _>(developer::create_matchmaker_request)
    .call::<dev::DeleteMatchmaker, _, _>(developer::delete_matchmaker)
    .newer::<dev::ListMatches, _, _>(developer::list_matches)
    .newer::<dev::ListClients, _, _>(developer::list_clients)
    .open::<play::PingService, _, _>(player::ping)
    .open::<play::CreateUser, _, _>(player::create_user)
    .open::<play::CreateToken, _, _>(player::create_token)
    .call::<play::RenewToken, _, _>(player::renew_token)
    .call::<play::ChangePassword, _, _>(player::change_password)
    .call::<play::CreateClient, _, _>(player::create_client)
    .call::<play::Interchange, _, _>(player::interchange)
    .call::<play::RenewConnection, _, _>(player::renew_connection)
    .open::<run::CreateToken, _, _>(runtime::create_token)
    .call::<run::Interchange, _, _>(runtime::interchange)
    .open::<dispatcher::CreateToken, _, _>(runtime::dispatcher_token)
    .call::<dispatcher::CalculateShard, _, _>(runtime::calculate_shard)
    .call::<dispatcher::Report, _, _>(runtime::report)
}

/// The address of every operation, for the test that tries each as everybody.
pub fn addresses() -> Vec<&'static str> {
    operations().addresses
}

pub fn router(app: App) -> Router {
    let Routes { router, document, .. } = operations();
    let document = document.finish().to_json().expect("the document is plain data");
    let document = Bytes::from(document);
    let mut router = router.route(KEYS_ROUTE, get(runtime::keys)).route(
        OPENAPI_ROUTE,
        get(|| async { ([(header::CONTENT_TYPE, "application/json")], document) }),
    );
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
        .layer(middleware::from_fn_with_state(app.clone(), limit_body))
        .layer(middleware::from_fn_with_state(app.clone(), limits::check_address))
        .layer(cors::layer(&app.config.http_cors_origins))
        .layer(middleware::from_fn(limit_time))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            Error::Internal(anyhow::anyhow!("a handler panicked")).into_response()
        }))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(middleware::from_fn_with_state(app.clone(), observe))
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .with_state(app)
}

async fn wrong_method() -> Error {
    Error::WrongMethod
}

fn is_upload(request: &Request) -> bool {
    request.uri().path() == dev::UploadFilesArchive::ROUTE
}

/// Archives may be larger than everything else. What a handler did not read of a body because it refused the request is read
/// away: the connection would be closed otherwise, under the next request of a proxy that keeps it open.
async fn limit_body(
    axum::extract::State(app): axum::extract::State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let (limit, bounds) = if is_upload(&request) {
        (developer::archive_max(&app) + UPLOAD_MARGIN, READ_UPLOAD_AWAY)
    } else {
        (BODY_MAX, READ_AWAY)
    };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        read_away(request.into_body().into_data_stream(), bounds).await;
        return Error::TooLarge { limit }.into_response();
    }
    DefaultBodyLimit::max(limit).apply(&mut request);
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let body = Arc::new(Mutex::new(body.into_data_stream()));
    let rest = || {
        let body = body.clone();
        let poll = move |context: &mut std::task::Context<'_>| {
            let mut body = body.lock().unwrap_or_else(PoisonError::into_inner);
            body.poll_next_unpin(context)
        };
        futures_util::stream::poll_fn(poll)
    };
    let response = next
        .run(Request::from_parts(head, axum::body::Body::from_stream(rest())))
        .await;
    if response.status().is_client_error() {
        read_away(rest(), bounds).await;
    }
    response
}

/// Reads a refused body to its end, within bounds: a sender that is cut off while it sends does not hear why.
async fn read_away(
    mut stream: impl Stream<Item = std::result::Result<Bytes, axum::Error>> + Unpin,
    (bytes_max, wait): (usize, Duration),
) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(chunk)) = stream.next().await {
            bytes += chunk.len();
            if bytes > bytes_max {
                break;
            }
        }
    };
    tokio::time::timeout(wait, reading).await.ok();
}

async fn limit_time(request: Request, next: Next) -> Response {
    let limit = if is_upload(&request) {
        UPLOAD_TIMEOUT
    } else {
        REPLY_TIMEOUT
    };
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::Unavailable("the answer took too long, try again").into_response(),
    }
}

/// Counts requests, lets logs of one request be found together, and goes on with the caller's trace.
async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
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
    let span = if trace::is_on() {
        let method = request.method().as_str();
        let span = tracing::info_span!(
            "request",
            request.id = id,
            operation,
            otel.name = operation,
            otel.kind = "server",
            http.request.method = method,
            http.route = path
        );
        trace::go_on(&span, request.headers());
        span
    } else {
        tracing::info_span!("request", request.id = id, operation)
    };
    let logged = app
        .config
        .telemetry
        .access_logs_enabled
        .then(|| (request.method().clone(), request.uri().path().to_owned()));
    let begun = std::time::Instant::now();
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    if trace::is_on() {
        trace::answered(&span, status.as_u16());
    }
    metrics::counter!("omgservers_requests_total", "operation" => operation.clone(), "status" => status.as_str().to_owned()).increment(1);
    if !operation.ends_with("interchange") {
        metrics::histogram!("omgservers_request_seconds", "operation" => operation)
            .record(begun.elapsed().as_secs_f64());
    }
    if let Some((method, path)) = logged {
        let duration_ms = begun.elapsed().as_millis();
        span.in_scope(|| tracing::info!(%method, path, status = status.as_u16(), duration_ms, "answered"));
    }
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        span.in_scope(|| tracing::error!(duration_ms = begun.elapsed().as_millis(), "answered 500"));
    }
    response
}
