//! A TCP port of one's own.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// A free port of 127.0.0.1 that nobody else gets as long as this lives.
///
/// A socket is bound to it and never listens: so the kernel gives it to nobody, also while the server for which
/// it is kept is down. A server that sets `SO_REUSEADDR`, as all do, can listen on it; until one does, connections
/// are refused.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _socket: OwnedFd,
}

impl Port {
    /// Has the kernel choose a free port.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn reserve() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        // Not before it is bound: two sockets that share could be given the same port.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { number: address.port(), _socket: socket })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its address, of the form `127.0.0.1:6379`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_reserved_port_refuses_until_somebody_listens_and_again_after() {
        let port = Port::reserve().unwrap();
        for _ in 0..2 {
            let refused = TcpStream::connect(port.address()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            drop(listener);
        }
    }

    #[test]
    fn a_reserved_port_is_given_to_nobody_else() {
        let ports: Vec<_> = (0..200).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<_> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
        let chosen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(!numbers.contains(&chosen));
    }
}
