//! One connection of a scripted broker.

use super::*;

pub(super) async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            return;
        };
        let connection = inner.memory().note_connection();
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            let mut orders = inner.orders.subscribe();
            // Many tests end a connection in the middle of a packet, so its error is no failure.
            _ = serve(socket, connection, &inner, &mut orders).await;
            inner.changed.notify_waiters();
        });
    }
}

/// Reads the client's bytes at the script's pace and up to its limit.
struct PacedReader<'a> {
    socket: ReadHalf<TcpStream>,
    inner: &'a Inner,
    bytes: usize,
}

impl PacedReader<'_> {
    /// Reads what is received, up to the script's size; an error when the script cuts.
    async fn read(&mut self, into: &mut Vec<u8>) -> std::io::Result<()> {
        let script = self.inner.script();
        let mut room = vec![0; script.reads_slowly.map_or(16 * 1024, |(bytes, _)| bytes)];
        if let Some((_, rest)) = script.reads_slowly {
            sleep(rest).await;
        }
        let count = self.socket.read(&mut room).await?;
        self.bytes += count;
        let is_cut = script.cut_after_read.is_some_and(|max| self.bytes >= max);
        if count == 0 || is_cut {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        into.extend(&room[..count]);
        Ok(())
    }
}

/// Waits while the script is half-open.
async fn open(inner: &Inner) {
    inner.until(|| !inner.memory().script.is_half_open).await;
}

/// The answers to one client.
struct ClientConnection<'a> {
    inner: &'a Inner,
    is_v5: bool,
    socket: WriteHalf<TcpStream>,
    written: usize,
    /// Acknowledgements that are due later.
    late: tokio::sync::mpsc::Sender<u16>,
}

impl ClientConnection<'_> {
    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let room = self.inner.memory().script.cut_after_written;
        let room = room.map_or(usize::MAX, |max| max.saturating_sub(self.written));
        let sent = &bytes[..bytes.len().min(room)];
        self.socket.write_all(sent).await?;
        self.written += sent.len();
        if sent.len() < bytes.len() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }

    async fn answer(
        &mut self,
        packet: &ClientPacket,
        script: &BrokerScript,
    ) -> std::io::Result<()> {
        let closed = || Err(std::io::ErrorKind::ConnectionAborted.into());
        match packet {
            ClientPacket::Connect(connect) => {
                let code = match connect.level {
                    5 if script.is_old => {
                        match script.old_answer {
                            OldAnswer::Refusal => {
                                self.write(&codec::connack(false, 1, &[])).await?;
                            }
                            OldAnswer::RefusalOf5 => {
                                self.write(&codec::connack(true, 0x84, &[])).await?;
                            }
                            OldAnswer::Acceptance => {
                                return self.write(&codec::connack(false, 0, &[])).await;
                            }
                            OldAnswer::Nothing => return Ok(()),
                        }
                        return closed();
                    }
                    5 if script.refuses_retained_wills && connect.will_retained => 0x9a,
                    _ => script.connack,
                };
                let answer = codec::connack(self.is_v5, code, &script.terms);
                self.write(&answer).await?;
                if code != 0 {
                    return closed();
                }
                self.write(&script.greeting).await
            }
            ClientPacket::Publish(message) if message.qos > 0 => {
                self.inner.memory().note_unanswered();
                match script.acknowledges {
                    Acknowledges::Always => self.acknowledge(message.id, 0).await,
                    Acknowledges::With(code) => self.acknowledge(message.id, code).await,
                    Acknowledges::Never => Ok(()),
                    Acknowledges::Late(after) => {
                        let (late, id) = (self.late.clone(), message.id);
                        tokio::spawn(async move {
                            sleep(after).await;
                            // The connection may have ended.
                            _ = late.send(id).await;
                        });
                        Ok(())
                    }
                }
            }
            ClientPacket::Subscribe { id, filters } => {
                let refusal = if self.is_v5 { 0x87 } else { 0x80 };
                let is_refused = |name| script.refused_filters.contains(name);
                let codes = filters.iter().map(|filter| match is_refused(&filter.name) {
                    true => refusal,
                    false => filter.qos,
                });
                let codes: Vec<u8> = codes.collect();
                let answer = codec::suback(0x90, self.is_v5, *id, &codes);
                self.write(&answer).await
            }
            ClientPacket::Unsubscribe { id, filters } => {
                let codes = vec![0; filters.len()];
                let answer = codec::suback(0xb0, self.is_v5, *id, &codes);
                self.write(&answer).await
            }
            ClientPacket::Ping => self.write(&[0xd0, 0]).await,
            ClientPacket::Publish(_) | ClientPacket::PubAck { .. } | ClientPacket::Disconnect => {
                Ok(())
            }
        }
    }

    async fn acknowledge(&mut self, id: u16, code: u8) -> std::io::Result<()> {
        self.inner.memory().note_answered();
        self.write(&codec::puback(self.is_v5, id, code)).await
    }
}

async fn serve(
    socket: TcpStream,
    connection: usize,
    inner: &Inner,
    orders: &mut broadcast::Receiver<BrokerOrder>,
) -> std::io::Result<()> {
    let (read, write) = tokio::io::split(socket);
    let mut reader = PacedReader {
        socket: read,
        inner,
        bytes: 0,
    };
    let (late, mut due) = tokio::sync::mpsc::channel::<u16>(64);
    let mut client = ClientConnection {
        inner,
        is_v5: false,
        socket: write,
        written: 0,
        late,
    };
    let mut unread = Vec::new();
    loop {
        while let Some(packet) = codec::take(&mut unread, client.is_v5) {
            if let ClientPacket::Connect(connect) = &packet {
                client.is_v5 = connect.level == 5;
            }
            // Read once, so that the same script remembers and answers the packet.
            let script = inner.script();
            inner.remember(connection, packet.clone(), &script);
            client.answer(&packet, &script).await?;
        }
        tokio::select! {
            biased;
            () = open(inner) => {}
            order = orders.recv() => if matches!(order, Ok(BrokerOrder::Close)) { return Ok(()) },
        }
        tokio::select! {
            read = reader.read(&mut unread) => {
                read?;
                open(inner).await;
                let reply = match inner.script().instead {
                    None => continue,
                    Some(Instead::Echo) => std::mem::take(&mut unread),
                    Some(Instead::Say(bytes)) => bytes,
                };
                unread.clear();
                client.write(&reply).await?;
            }
            order = orders.recv() => match order {
                Ok(BrokerOrder::Send { v3, v5 }) => {
                    client.write(if client.is_v5 { &v5 } else { &v3 }).await?;
                }
                Ok(BrokerOrder::Close) | Err(_) => return Ok(()),
            },
            Some(id) = due.recv() => client.acknowledge(id, 0).await?,
        }
    }
}
