//! One connection of a scripted broker.

use super::*;

pub(super) async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            return;
        };
        let connection = {
            let mut memory = inner.memory();
            memory.connections += 1;
            memory.open += 1;
            memory.unanswered = 0;
            memory.connections
        };
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            let mut orders = inner.orders.subscribe();
            // A socket that ends in the middle of a packet is what many tests do.
            _ = serve(socket, connection, &inner, &mut orders).await;
            inner.memory().open -= 1;
            inner.changed.notify_waiters();
        });
    }
}

/// The client's bytes, as slowly and as many as the script says.
struct Reader<'a> {
    socket: ReadHalf<TcpStream>,
    inner: &'a Inner,
    bytes: usize,
}

impl Reader<'_> {
    /// All that is there, up to what may be read at once; an error when the script cuts.
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

/// Waits until the script lets bytes through.
async fn awake(inner: &Inner) {
    loop {
        let changed = inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if !inner.memory().script.is_half_open {
            return;
        }
        changed.await;
    }
}

struct Writer {
    socket: WriteHalf<TcpStream>,
    bytes: usize,
}

impl Writer {
    async fn write(&mut self, inner: &Inner, bytes: &[u8]) -> std::io::Result<()> {
        let room = inner.memory().script.cut_after_written;
        let room = room.map_or(usize::MAX, |max| max.saturating_sub(self.bytes));
        let sent = &bytes[..bytes.len().min(room)];
        self.socket.write_all(sent).await?;
        self.bytes += sent.len();
        if sent.len() < bytes.len() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }
}

async fn serve(
    socket: TcpStream,
    connection: usize,
    inner: &Arc<Inner>,
    orders: &mut broadcast::Receiver<Order>,
) -> std::io::Result<()> {
    let (read, write) = tokio::io::split(socket);
    let mut reader = Reader {
        socket: read,
        inner,
        bytes: 0,
    };
    let mut writer = Writer {
        socket: write,
        bytes: 0,
    };
    let mut unread = Vec::new();
    let mut v5 = false;
    // Acknowledgements that are due later.
    let (late, mut due) = tokio::sync::mpsc::channel::<u16>(64);
    loop {
        while let Some(packet) = first(&mut unread, v5).await {
            if let Packet::Connect(connect) = &packet {
                v5 = connect.level == 5;
            }
            // Once, so that what is remembered is what is answered.
            let script = inner.script();
            inner.remember(connection, packet.clone(), &script);
            answer(&packet, v5, (inner, &script), &mut writer, &late).await?;
        }
        tokio::select! {
            biased;
            () = awake(inner) => {}
            order = orders.recv() => if matches!(order, Ok(Order::Close)) { return Ok(()) },
        }
        tokio::select! {
            read = reader.read(&mut unread) => {
                read?;
                awake(inner).await;
                let heard = match inner.script().instead {
                    None => continue,
                    Some(Instead::Echo) => std::mem::take(&mut unread),
                    Some(Instead::Say(bytes)) => bytes,
                };
                unread.clear();
                writer.write(inner, &heard).await?;
            }
            order = orders.recv() => match order {
                Ok(Order::Say(old, new)) => {
                    writer.write(inner, if v5 { &new } else { &old }).await?;
                }
                Ok(Order::Close) | Err(_) => return Ok(()),
            },
            Some(id) = due.recv() => acknowledge(id, 0, v5, inner, &mut writer).await?,
        }
    }
}

/// Takes the first whole packet off.
async fn first(unread: &mut Vec<u8>, v5: bool) -> Option<Packet> {
    let mut slice: &[u8] = unread;
    let packet = codec::read(&mut slice, v5).await;
    let (packet, bytes) = packet.ok()?;
    unread.drain(..bytes);
    Some(packet)
}

async fn answer(
    packet: &Packet,
    v5: bool,
    (inner, script): (&Arc<Inner>, &Script),
    writer: &mut Writer,
    late: &tokio::sync::mpsc::Sender<u16>,
) -> std::io::Result<()> {
    let closed = || Err(std::io::ErrorKind::ConnectionAborted.into());
    match packet {
        Packet::Connect(connect) => {
            let code = match connect.level {
                5 if script.is_old => {
                    // Its own format: it knows no other.
                    writer.write(inner, &codec::connack(false, 1, &[])).await?;
                    return closed();
                }
                5 if script.refuses_retained_wills && connect.will_retained => 0x9a,
                _ => script.connack,
            };
            let bytes = codec::connack(v5, code, &script.terms);
            writer.write(inner, &bytes).await?;
            if code != 0 {
                return closed();
            }
            writer.write(inner, &script.greeting).await
        }
        Packet::Publish(message) if message.qos > 0 => {
            {
                let mut memory = inner.memory();
                memory.unanswered += 1;
                memory.unanswered_max = memory.unanswered_max.max(memory.unanswered);
            }
            match script.acknowledges {
                Acknowledges::Always => acknowledge(message.id, 0, v5, inner, writer).await,
                Acknowledges::With(code) => acknowledge(message.id, code, v5, inner, writer).await,
                Acknowledges::Never => Ok(()),
                Acknowledges::Late(after) => {
                    let (late, id) = (late.clone(), message.id);
                    tokio::spawn(async move {
                        sleep(after).await;
                        // The connection may have ended.
                        _ = late.send(id).await;
                    });
                    Ok(())
                }
            }
        }
        Packet::Subscribe { id, filters } => {
            let refusal = if v5 { 0x87 } else { 0x80 };
            let is_refused = |name| script.refused_filters.contains(name);
            let codes = filters.iter().map(|filter| match is_refused(&filter.name) {
                true => refusal,
                false => filter.qos,
            });
            let codes: Vec<u8> = codes.collect();
            writer
                .write(inner, &codec::suback(0x90, v5, *id, &codes))
                .await
        }
        Packet::Unsubscribe { id, filters } => {
            let codes = vec![0; filters.len()];
            writer
                .write(inner, &codec::suback(0xb0, v5, *id, &codes))
                .await
        }
        Packet::Ping => writer.write(inner, &[0xd0, 0]).await,
        Packet::Publish(_) | Packet::PubAck { .. } | Packet::Disconnect => Ok(()),
    }
}

async fn acknowledge(
    id: u16,
    code: u8,
    v5: bool,
    inner: &Inner,
    writer: &mut Writer,
) -> std::io::Result<()> {
    {
        let mut memory = inner.memory();
        memory.unanswered = memory.unanswered.saturating_sub(1);
    }
    writer.write(inner, &codec::puback(v5, id, code)).await
}
