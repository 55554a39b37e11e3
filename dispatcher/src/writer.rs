//! The writing half of a WebSocket: frames are gathered and written at once, and there is an orderly end.

use std::io::Cursor;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use fastwebsockets::{CloseCode, Frame, OpCode, Payload};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Chain};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::farewell::Farewell;
use crate::outbox::Packet;
use crate::rooms::Bell;

/// How long the end of a connection may take: what is being written, the last words, the other side's answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// A buffer that grew larger in a busy moment is given back.
const KEPT_BUFFER_BYTES: usize = 32 * 1024;

/// The reading half: what came with the request is read first.
pub(crate) type ReadHalf = Chain<Cursor<Bytes>, OwnedReadHalf>;

pub(crate) struct Writer {
    socket: OwnedWriteHalf,
    out: BytesMut,
}

impl Writer {
    pub(crate) fn new(socket: OwnedWriteHalf) -> Self {
        Self {
            socket,
            out: BytesMut::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(crate) fn put_packet(&mut self, packet: &Packet) {
        let opcode = if packet.text { OpCode::Text } else { OpCode::Binary };
        self.put(opcode, &packet.bytes);
    }

    pub(crate) fn put(&mut self, opcode: OpCode, payload: &[u8]) {
        let mut head = [0; 16];
        let length = Frame::new(true, opcode, None, Payload::Borrowed(payload)).fmt_head(&mut head);
        self.out.reserve(length + payload.len());
        self.out.put_slice(&head[..length]);
        self.out.put_slice(payload);
    }

    pub(crate) fn put_close(&mut self, code: u16, reason: &[u8]) {
        let frame = Frame::close(code, reason);
        self.put(OpCode::Close, &frame.payload);
    }

    /// Writes everything, however long the socket takes, unless the room wants to end the connection.
    pub(crate) async fn flush(&mut self, bell: &Bell) -> std::io::Result<()> {
        tokio::select! {
            biased;
            written = write_out(&mut self.socket, &mut self.out) => written?,
            () = bell.closing.notified() => timeout(LINGER, write_out(&mut self.socket, &mut self.out)).await??,
        }
        if self.out.capacity() > KEPT_BUFFER_BYTES {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    pub(crate) async fn say_goodbye(&mut self, farewell: &Farewell) {
        for packet in &farewell.rest {
            self.put_packet(packet);
        }
        self.put_close(farewell.code, &farewell.reason);
        self.finish().await;
    }

    /// Answers a close, behind what was being written.
    pub(crate) async fn answer_close(&mut self, code: Option<u16>) {
        match code {
            Some(code) if CloseCode::from(code).is_allowed() => self.put_close(code, &[]),
            Some(_) => self.put_close(1002, &[]),
            None => self.put(OpCode::Close, &[]),
        }
        self.finish().await;
    }

    pub(crate) async fn finish(&mut self) {
        let _ = timeout(LINGER, write_out(&mut self.socket, &mut self.out)).await;
    }

    /// Reads until the other side is done: closing with unread data would reset the connection, and the last words
    /// would be lost.
    pub(crate) async fn drain(&mut self, read_half: &mut ReadHalf) {
        let _ = self.socket.shutdown().await;
        let mut waste = [0; 4096];
        let _ = timeout(LINGER, async {
            while read_half.read(&mut waste).await.is_ok_and(|count| count > 0) {}
        })
        .await;
    }
}

/// Writes everything. What was written is gone from `out` even if the future is dropped half way. A plain send costs
/// less than the vectored one of `write_all_buf`.
async fn write_out(socket: &mut OwnedWriteHalf, out: &mut BytesMut) -> std::io::Result<()> {
    while !out.is_empty() {
        let count = socket.write(out).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        out.advance(count);
    }
    Ok(())
}
