//! What runner, guardian and gate say to each other: one packet each, as JSON.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use cerrojo::Instant;
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
        socketpair,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::ending::OnLost;

/// The longest packet. The only text in one that may be long is a store's URL.
const PACKET_MAX: usize = 8 * 1024;

/// What the runner tells the guardian.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The lock is held: from now on the guardian answers for the command's end.
    Guard(Lease),
    /// The lease is valid until then.
    Renewed { valid_until_ns: u64 },
    /// The lease is lost.
    Lost,
    /// For the command's group.
    Signal(i32),
}

/// What the guardian tells the runner.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The gate stands, as the leader of this process group.
    Started { group: i32 },
    /// The command was stopped by this signal.
    Stopped { signal: i32 },
    /// The command ended by itself, with this status as `wait` has it.
    Ended { status: i32 },
    /// The command was ended for the lease's sake, and all that it had started.
    EndedByUs,
}

/// The lease that the command runs under, with all that is needed to end the one and give back the other.
///
/// It goes by the socket, since a command line or an environment can be read by others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) store: String,
    pub(crate) name: String,
    pub(crate) owner: [u8; 16],
    pub(crate) valid_until_ns: u64,
    pub(crate) ttl_ns: u64,
    pub(crate) grace_ns: u64,
    pub(crate) on_lost: OnLost,
}

impl Lease {
    pub(crate) fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until_ns)
    }
}

/// What the runner tells the gate, together with stdin, stdout and stderr of the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Go {
    /// What the environment has beyond ours, and (without a value) what it has not.
    pub(crate) environment: Vec<(String, Option<String>)>,
}

/// Why the gate could not become the command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NotRun {
    pub(super) errno: i32,
}

/// Two ends that keep packets apart and that read as ended once the other end is gone.
pub(super) fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends without waiting: what cannot be sent at once is an error.
pub(super) fn tell(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    let packet = encode(message)?;
    send(socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Sends together with descriptors.
pub(super) fn tell_with(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let packet = encode(message)?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message; none: the other end is gone.
pub(super) fn hear<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<T>> {
    let mut packet = vec![0; PACKET_MAX];
    let mut receive = || recv(&socket, packet.as_mut_slice(), RecvFlags::empty());
    let (_, length) = match receive() {
        // The other end is gone and has left something of ours unread. That is told once, before what it has sent.
        Err(Errno::CONNRESET) => receive()?,
        received => received?,
    };
    decode(packet.get(..length))
}

/// The next message with its descriptors; none: the other end is gone.
pub(super) fn hear_with<T: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut packet)];
    let length = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    Ok(decode(packet.get(..length))?.map(|message| (message, descriptors)))
}

fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let packet = serde_json::to_vec(message)?;
    match packet.len() <= PACKET_MAX {
        true => Ok(packet),
        false => Err(io::ErrorKind::ArgumentListTooLong.into()),
    }
}

fn decode<T: DeserializeOwned>(packet: Option<&[u8]>) -> io::Result<Option<T>> {
    match packet {
        Some([]) => Ok(None),
        Some(packet) => Ok(Some(serde_json::from_slice(packet)?)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn packets_stay_apart_and_a_closed_end_reads_as_ended() {
        let (ours, theirs) = sockets().unwrap();
        tell(&ours, &Order::Signal(15)).unwrap();
        tell(&ours, &Order::Lost).unwrap();
        drop(ours);
        assert!(matches!(hear(&theirs), Ok(Some(Order::Signal(15)))));
        assert!(matches!(hear(&theirs), Ok(Some(Order::Lost))));
        assert!(matches!(hear::<Order>(&theirs), Ok(None)));
    }

    #[test]
    fn the_last_word_of_one_that_has_left_something_unread_is_heard() {
        let (ours, theirs) = sockets().unwrap();
        tell(&ours, &Order::Signal(15)).unwrap();
        tell(&theirs, &Report::Ended { status: 15 }).unwrap();
        drop(theirs);
        assert!(matches!(hear(&ours), Ok(Some(Report::Ended { status: 15 }))));
        assert!(matches!(hear::<Report>(&ours), Ok(None)));
    }

    #[test]
    fn descriptors_arrive_in_order_and_are_closed_by_exec() {
        let (ours, theirs) = sockets().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let go = Go { environment: vec![("CERROJO_LOCK".to_owned(), Some("x".to_owned()))] };
        tell_with(&ours, &go, &[reader.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        drop((reader, writer));
        let (_, mut descriptors) = hear_with::<Go>(&theirs).unwrap().unwrap();
        assert_eq!(descriptors.len(), 3);
        for descriptor in &descriptors {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        rustix::io::write(descriptors.pop().unwrap(), b"through").unwrap();
        let mut reader = std::io::PipeReader::from(descriptors.swap_remove(0));
        drop(descriptors);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn a_packet_that_is_too_long_is_refused_at_both_ends() {
        let (ours, theirs) = sockets().unwrap();
        assert!(tell(&ours, &" ".repeat(PACKET_MAX)).is_err());
        send(&ours, &vec![b' '; PACKET_MAX + 1], SendFlags::empty()).unwrap();
        assert!(hear::<Order>(&theirs).is_err());
    }
}
