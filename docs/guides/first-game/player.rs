//! A player: comes in, says hello and waits for its echo.

use omgservers_runtime_sdk::Error;
use omgservers_runtime_sdk::player::{Event, Player};

#[tokio::main]
async fn main() -> Result<(), Error> {
    play("http://localhost:8080").await
}

pub async fn play(address: &str) -> Result<(), Error> {
    let player = Player::sign_up(address).await?;
    let mut client = player.create_client("acme", "hello", "prod").await?;
    while let Some(event) = client.next().await {
        match event {
            Event::Status { stage, detail, .. } => println!("waiting: {stage:?} {}", detail.unwrap_or_default()),
            Event::Assigned { qualifier, runtime, .. } => println!("in {qualifier:?} {runtime}"),
            Event::Connected => client.send_text("hello")?,
            Event::Packet { bytes, .. } => {
                println!("heard: {}", String::from_utf8_lossy(&bytes));
                if bytes == "hello" {
                    break;
                }
            }
            Event::Removed { reason } => println!("sent away: {reason}"),
            _ => {}
        }
    }
    Ok(())
}
