//! What the two processes say to each other: JSON values, one a line.

use std::{io, os::unix::net};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

pub(crate) struct Line {
    incoming: Lines<BufReader<OwnedReadHalf>>,
    outgoing: OwnedWriteHalf,
}

impl Line {
    pub(crate) fn new(socket: net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (incoming, outgoing) = UnixStream::from_std(socket)?.into_split();
        Ok(Self { incoming: BufReader::new(incoming).lines(), outgoing })
    }

    pub(crate) async fn send(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.outgoing.write_all(&line).await
    }

    /// The next value; `None` when the other side is gone. May be dropped and called again.
    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let line = self.incoming.next_line().await?;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    /// Ready when the other side is gone; it has nothing to say before.
    pub(crate) async fn hung_up(&mut self) {
        drop(self.receive::<serde_json::Value>().await);
    }

    /// Hangs up, and waits until the other side has done so too.
    pub(crate) async fn close(mut self) {
        drop(self.outgoing);
        while let Ok(Some(_)) = self.incoming.next_line().await {}
    }
}
