//! Where things lie in the store: one main key and its side keys, all in one slot.

use std::borrow::Cow;

use distlock_core::Key;

use super::library::Words;

/// What follows the main key's name in the names of its side keys, in the order of the scripts'
/// `KEYS`.
const SIDES: [&str; 8] = ["f", "s", "qx", "qs", "c", "p", "d", "x"];

/// The prefix of side keys in bare mode, where main keys have none.
const BARE_PREFIX: &str = "distlock-side";

/// How keys are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    name: String,
    /// The fence counter, where all keys share one.
    fence: Option<String>,
}

impl Namespace {
    /// Names on one server, where all keys share a fence counter.
    pub(super) fn on_server(name: impl Into<String>) -> Self {
        let name = name.into();
        let fence = format!("{}:fence", if name.is_empty() { BARE_PREFIX } else { &name });
        Self { name, fence: Some(fence) }
    }

    /// Names on a cluster, where all that a script touches has to lie in one slot.
    pub(super) fn on_cluster(name: impl Into<String>) -> Self {
        Self { name: name.into(), fence: None }
    }

    /// True if main keys are the keys themselves, as foreign clients write them.
    pub(super) fn is_bare(&self) -> bool {
        self.name.is_empty()
    }

    /// True if a lock on this key would write over what locks write themselves.
    pub(super) fn reserves(&self, key: &Key) -> bool {
        let rest = key.as_str().strip_prefix(BARE_PREFIX);
        self.is_bare() && rest.is_some_and(|rest| rest.starts_with(':'))
    }

    /// The fence counter, where all keys share one.
    pub(super) fn counter(&self) -> Option<&str> {
        self.fence.as_deref()
    }

    /// True if the main key alone names all keys of a lock.
    pub(super) fn has_one_main_key(&self) -> bool {
        self.fence.is_some() && !self.is_bare()
    }

    /// True if what the library touches has to lie in one slot.
    pub(super) fn is_on_cluster(&self) -> bool {
        self.fence.is_none()
    }

    /// The keys of one lock as keys.lua takes them.
    pub(super) fn keys(&self, key: &Key) -> Words {
        let mut keys = Words::default();
        if self.has_one_main_key() {
            self.push_main(&mut keys, key);
        } else {
            keys.extend(self.all(key));
            keys.push(self.channel(key));
        }
        keys
    }

    /// The key that foreign clients would see, and that excludes them.
    pub(super) fn main(&self, key: &Key) -> String {
        self.main_parts(key).concat()
    }

    pub(super) fn push_main(&self, keys: &mut Words, key: &Key) {
        let [name, open, key, close] = self.main_parts(key);
        keys.push(format_args!("{name}{open}{key}{close}"));
    }

    fn main_parts<'a>(&'a self, key: &'a Key) -> [Cow<'a, str>; 4] {
        if self.is_bare() {
            [key.as_str(), "", "", ""].map(Cow::Borrowed)
        } else {
            [self.name.as_str().into(), ":{".into(), escape(key), "}".into()]
        }
    }

    /// All keys of one lock: main first.
    fn all(&self, key: &Key) -> [String; 9] {
        let main = self.main(key);
        std::array::from_fn(|index| match (index.checked_sub(1), &self.fence) {
            (None, _) => main.clone(),
            (Some(0), Some(fence)) => fence.clone(),
            (Some(side), _) if self.is_bare() => {
                format!("{BARE_PREFIX}:{{{}}}:{}:{main}", side_tag(&main), SIDES[side])
            }
            (Some(side), _) => format!("{main}:{}", SIDES[side]),
        })
    }

    /// A pattern that matches the main keys whose names begin with `prefix`.
    pub(super) fn pattern(&self, prefix: &str) -> String {
        format!("{}:{{{}*}}", glob_escape(&self.name), glob_escape(&percent_escape(prefix)))
    }

    /// The key behind a main key.
    pub(super) fn key_of(&self, main: &str) -> Option<Key> {
        let inner = main.strip_prefix(&self.name)?.strip_prefix(":{")?.strip_suffix('}')?;
        Key::new(percent_unescape(inner)?).ok()
    }

    /// The channel of pushes for a key, without the id of the client: in the slot of the key, or
    /// one for all keys on a server that is not part of a cluster.
    pub(super) fn channel(&self, key: &Key) -> String {
        if !self.is_on_cluster() {
            return self.channel_of_all();
        }
        let main = self.main(key);
        if self.is_bare() {
            format!("{BARE_PREFIX}:{{{}}}:push:{main}:", side_tag(&main))
        } else {
            format!("{main}:push:")
        }
    }

    /// The stream of the journal.
    pub(super) fn journal(&self) -> String {
        format!("{}:journal", if self.is_bare() { BARE_PREFIX } else { &self.name })
    }

    /// Which keys have entries in the journal: in its slot, and under the namespace.
    pub(super) fn journal_index(&self) -> String {
        let journal = self.journal();
        format!("{journal}:{{{journal}}}:keys")
    }

    pub(super) fn channel_of_all(&self) -> String {
        format!("{}:push:", if self.is_bare() { BARE_PREFIX } else { &self.name })
    }
}

fn escape(key: &Key) -> Cow<'_, str> {
    if is_plain(key) {
        Cow::Borrowed(key.as_str())
    } else {
        Cow::Owned(percent_escape(key.as_str()))
    }
}

/// True if nothing in it has to be escaped.
fn is_plain(key: &Key) -> bool {
    !key.as_str().bytes().any(|byte| matches!(byte, b'%' | b'{' | b'}'))
}

/// Braces would move the hash tag, and with it the slot; the percent sign keeps it reversible.
fn percent_escape(text: &str) -> String {
    text.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn percent_unescape(text: &str) -> Option<String> {
    let plain = text.replace("%7B", "{").replace("%7D", "}").replace("%25", "%");
    (percent_escape(&plain) == text).then_some(plain)
}

/// The part of a name that decides its slot in a cluster.
fn hash_tag(name: &str) -> &str {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(name)
}

/// The tag that puts side keys into the slot of a bare main key: its own, or, where a closing brace
/// would end that early, the first number that lies in the same slot.
fn side_tag(main: &str) -> Cow<'_, str> {
    let tag = hash_tag(main);
    if !tag.contains('}') {
        return Cow::Borrowed(tag);
    }
    let slot = slot(tag);
    let mut numbers = (0..u32::MAX).map(|number| number.to_string());
    numbers.find(|number| self::slot(number) == slot).map_or(Cow::Borrowed(tag), Cow::Owned)
}

/// The slot that a tag lies in: CRC-16/XMODEM of its bytes.
fn slot(tag: &str) -> u16 {
    let crc = tag.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16384
}

fn glob_escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(namespace: &str, key: &str) -> [String; 9] {
        Namespace::on_cluster(namespace).all(&Key::new(key).unwrap())
    }

    #[test]
    fn names_that_look_alike_do_not_meet() {
        let pairs = [
            (("n", "foo"), ("n", "foo:q")),
            (("a", "b:c"), ("a:b", "c")),
            (("n", "%7B"), ("n", "{")),
            (("n", "a}:f"), ("n", "a")),
            (("", "x"), ("", "distlock-side:{x}:f:x")),
        ];
        for ((n1, k1), (n2, k2)) in pairs {
            let (one, two) = (all(n1, k1), all(n2, k2));
            assert!(one.iter().all(|name| !two.contains(name)) || n1.is_empty(), "{one:?} {two:?}");
            assert_ne!(one[0], two[0]);
        }
    }

    #[test]
    fn on_one_server_all_keys_share_a_fence_counter() {
        let counter = |name: &str, key: &str| {
            Namespace::on_server(name).all(&Key::new(key).unwrap())[1].clone()
        };
        assert_eq!(counter("ns", "a"), counter("ns", "b"));
        assert_eq!(counter("", "a"), "distlock-side:fence");
        assert_ne!(all("ns", "a")[1], all("ns", "b")[1], "on a cluster each has its own");
    }

    #[test]
    fn a_bare_main_key_is_the_key_byte_for_byte() {
        assert_eq!(all("", "lock:{a}b")[0], "lock:{a}b");
        assert_eq!(hash_tag(&all("", "lock:{a}b")[1]), "a");
    }

    proptest! {
        #[test]
        fn every_key_of_a_lock_has_one_hash_tag_and_reads_back(key in "[\\PC{}%:\\x00\n]{1,40}") {
            let namespace = Namespace::on_cluster("ns");
            let key = Key::new(key).unwrap();
            let names = namespace.all(&key);
            for name in &names {
                prop_assert_eq!(hash_tag(name), &*escape(&key));
            }
            prop_assert_eq!(namespace.key_of(&names[0]), Some(key));
        }
    }
}
