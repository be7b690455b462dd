//! Making connections, to whatever kind of store it is.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, Pipeline, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, TlsCertificates, TlsMode, Value,
};

use super::config::{Config, Topology, is_tls, tcp};
use super::faults::unless_of_a_cluster;
use super::shared_connection::SharedConnection;

/// How often the client crate follows a redirection by itself. Every script is idempotent by claim,
/// so its retries do no harm.
const REDIRECTIONS: u32 = 5;

/// A connection to a server or to a cluster.
#[derive(Clone)]
pub(super) enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
    Shared(SharedConnection),
}

impl Connection {
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn send(&mut self, cmd: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Server(connection) => {
                // Not by the trait, which would put it on the heap once more.
                let answer = connection.send_packed_command(cmd).await;
                answer.and_then(Value::extract_error).map_err(unless_of_a_cluster)
            }
            Self::Cluster(connection) => {
                connection.req_packed_command(cmd).await.and_then(Value::extract_error)
            }
            Self::Shared(connection) => connection.send(cmd).await.and_then(Value::extract_error),
        }
    }

    /// Sends commands in one message. Each has an answer of its own.
    pub(super) async fn send_all(
        &mut self,
        cmds: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let answers = match self {
            Self::Server(connection) => connection.req_packed_commands(cmds, 0, cmds.len()).await,
            Self::Cluster(connection) => connection.req_packed_commands(cmds, 0, cmds.len()).await,
            Self::Shared(connection) => connection.send_all(cmds).await,
        };
        let read = |answer: Value| answer.extract_error().map_err(unless_of_a_cluster);
        Ok(answers?.into_iter().map(read).collect())
    }

    /// Sends a command to one node of a cluster. Any means a primary: a replica may be cut off or
    /// silent without the cluster being any worse for it.
    pub(super) async fn send_to(&mut self, node: &Node, cmd: &Cmd) -> Result<Value, RedisError> {
        match (self, node) {
            (Self::Cluster(connection), Node::At { host, port }) => {
                let (host, port) = (host.clone(), *port);
                let at = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port });
                connection.route_command(cmd.clone(), at).await.and_then(Value::extract_error)
            }
            (Self::Cluster(connection), Node::Any) => {
                let at = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
                connection.route_command(cmd.clone(), at).await.and_then(Value::extract_error)
            }
            (connection, _) => connection.send(cmd).await,
        }
    }

    /// Sends commands in one message to the primary of this key, all over one connection: also
    /// those that name no key.
    pub(super) async fn send_all_beside(
        &mut self,
        key: &str,
        cmds: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let Self::Cluster(connection) = self else { return self.send_all(cmds).await };
        let at = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        let answers = connection.route_pipeline(cmds.clone(), 0, cmds.len(), at).await?;
        Ok(answers.into_iter().map(Value::extract_error).collect())
    }

    /// Listens to a channel: a sharded one on a cluster, an ordinary one elsewhere.
    pub(super) async fn subscribe(&mut self, channel: &str) -> Result<(), RedisError> {
        match self {
            Self::Server(connection) => connection.subscribe(channel).await,
            Self::Cluster(connection) => connection.ssubscribe(channel).await,
            // What is pushed over it goes to the program, so nobody asks for it.
            Self::Shared(_) => Ok(()),
        }
    }

    /// No longer listens to a channel.
    pub(super) async fn unsubscribe(&mut self, channel: &str) -> Result<(), RedisError> {
        match self {
            Self::Server(connection) => connection.unsubscribe(channel).await,
            Self::Cluster(connection) => connection.sunsubscribe(channel).await,
            Self::Shared(_) => Ok(()),
        }
    }
}

/// A node of a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    /// The only one, or any primary of a cluster.
    Any,
    /// A primary of a cluster.
    At { host: String, port: u16 },
}

impl Node {
    /// The primaries among what `CLUSTER NODES` tells, one line each.
    pub(super) fn primaries(text: &str) -> Vec<Self> {
        let read = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (address, flags) = (words.next()?, words.next()?);
            let flags: Vec<_> = flags.split(',').collect();
            if !flags.contains(&"master") || flags.contains(&"fail") {
                return None;
            }
            let (host, port) = address.split(['@', ',']).next()?.rsplit_once(':')?;
            Some(Self::At { host: host.to_owned(), port: port.parse().ok()? })
        };
        text.lines().filter_map(read).collect()
    }
}

/// The primary that the Sentinels name now; none where there are no Sentinels.
pub(super) async fn primary_now(config: &Config) -> Result<Option<ConnectionAddr>, RedisError> {
    let Topology::Sentinel { sentinels, primary, login } = &config.topology else {
        return Ok(None);
    };
    let client = primary_of(config, sentinels.clone(), primary, login).await?;
    Ok(Some(client.get_connection_info().addr().clone()))
}

/// Dials the store that the configuration names; whatever it pushes goes to `listener`. Says where
/// the primary is if Sentinels named it.
pub(super) async fn dial(
    config: &Config,
    listener: impl Fn(&PushInfo) + Send + Sync + 'static,
) -> Result<(Connection, Option<ConnectionAddr>), RedisError> {
    let sender = move |info: PushInfo| {
        listener(&info);
        Ok::<_, redis::aio::SendError>(())
    };
    let client = match &config.topology {
        Topology::Server(info) if config.tls_files.is_empty() => redis::Client::open(info.clone())?,
        Topology::Server(info) => {
            redis::Client::build_with_tls(info.clone(), certificates(config)?)?
        }
        Topology::Shared(shared) => return Ok((Connection::Shared(shared.clone()), None)),
        Topology::Sentinel { sentinels, primary, login } => {
            primary_of(config, sentinels.clone(), primary, login).await?
        }
        Topology::Cluster(nodes) => {
            let mut builder = ClusterClient::builder(nodes.clone())
                .use_protocol(ProtocolVersion::RESP3)
                .push_sender(sender)
                .retries(REDIRECTIONS)
                .connection_timeout(config.connect_timeout)
                .response_timeout(config.response_timeout)
                .tcp_settings(tcp());
            if !config.tls_files.is_empty() {
                builder = builder.certs(certificates(config)?);
            }
            let connection = builder.build()?.get_async_connection().await?;
            return Ok((Connection::Cluster(connection), None));
        }
    };
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(Some(config.response_timeout))
        .set_push_sender(sender);
    let connection = client.get_multiplexed_async_connection_with_config(&settings).await?;
    let named = matches!(config.topology, Topology::Sentinel { .. });
    let address = named.then(|| client.get_connection_info().addr().clone());
    Ok((Connection::Server(connection), address))
}

/// The certificates that the URL names, as they are now.
fn certificates(config: &Config) -> Result<TlsCertificates, RedisError> {
    config.tls_files.read().map_err(|refused| std::io::Error::other(refused).into())
}

/// Asks the Sentinels who the primary is now.
async fn primary_of(
    config: &Config,
    sentinels: Vec<ConnectionAddr>,
    primary: &str,
    login: &RedisConnectionInfo,
) -> Result<redis::Client, RedisError> {
    let tls = sentinels.iter().any(is_tls);
    let mut builder = SentinelClientBuilder::new(sentinels, primary, SentinelServerType::Master)?
        .set_client_to_redis_protocol(ProtocolVersion::RESP3)
        .set_client_to_redis_db(login.db())
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp());
    if tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if !config.tls_files.is_empty() {
        let certificates = certificates(config)?;
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    if let Some(user) = login.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = login.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    builder.build()?.async_get_client().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_primaries_that_live_are_nodes() {
        let text = "a1 127.0.0.1:7001@17001,host myself,master - 0 0 1 connected 0-5460\n\
                    b2 127.0.0.1:7002@17002 slave a1 0 0 1 connected\n\
                    c3 127.0.0.1:7003@17003 master,fail - 0 0 3 connected\n\
                    d4 ::1:7004@17004 master - 0 0 4 connected 5461-10922\n";
        let at = |host: &str, port| Node::At { host: host.to_owned(), port };
        assert_eq!(Node::primaries(text), [at("127.0.0.1", 7001), at("::1", 7004)]);
    }
}
