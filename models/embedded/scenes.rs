//! Writes drawn scenes with their truth to standard output, for the trainer of the embedded model (see
//! `spotter_street::records` for the format). Scene i of a run is a pure function of seed + i, independent of the number of
//! threads; scenes may come out of order.

use std::{
    io::{self, BufWriter, Write},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use clap::Parser;

use spotter_street::records;

/// Writes drawn scenes with their truth to standard output
#[derive(Parser)]
struct Args {
    /// Seed of the first scene
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of scenes; 0 goes on until the reader leaves
    #[arg(long, default_value_t = 0)]
    count: u64,
    /// Pixels across
    #[arg(long, default_value_t = 640)]
    width: u32,
    /// Pixels down
    #[arg(long, default_value_t = 360)]
    height: u32,
    /// Threads that draw
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> io::Result<()> {
    match write_all(&Args::parse()) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn write_all(args: &Args) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    records::write_header(&mut out, args.width, args.height)?;
    out.flush()?;
    let next = AtomicU64::new(0);
    let threads = args.threads.max(1);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(2 * threads);
        for index in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            let draw = move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if args.count != 0 && i >= args.count {
                        return;
                    }
                    let record =
                        records::record(args.seed.wrapping_add(i), args.width, args.height);
                    // No receiver: the reader has left.
                    if sender.send(record).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new()
                .name(format!("draw-{index}"))
                .spawn_scoped(scope, draw)?;
        }
        drop(sender);
        // Owned here, so that it is dropped on the first error and the threads end.
        for record in receiver {
            out.write_all(&record)?;
        }
        out.flush()
    })
}
