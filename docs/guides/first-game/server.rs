//! A game server: what one player says, all players of the lobby hear.

use omgservers_runtime_sdk::{Error, Event, Lane, Runtime, Settings};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // The platform tells a game server in its environment where it is and who it is.
    let mut runtime = Runtime::connect(Settings::from_environment()?).await?;
    // Load maps and the like here; players come after this line.
    runtime.ready();
    while let Some(event) = runtime.next().await {
        match event {
            // A player is assigned to us: ask for a socket.
            Event::ClientAdded { client, .. } => runtime.upgrade(client)?,
            // The socket is open: everybody hears of it.
            Event::Connected { client } => runtime.send_text_all(Lane::Reliable, &format!("{client} is here"))?,
            // What one says, all hear.
            Event::Packet { lane, bytes, .. } => runtime.send_all(lane, bytes)?,
            // This process is asked to end.
            Event::Stop => runtime.broadcast("the server restarts")?,
            _ => {}
        }
    }
    runtime.close().await;
    Ok(())
}
