//! The shapes of Terraform's http backend.

use serde::{Deserialize, Serialize};

/// Who locks a state, as Terraform says it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct LockInfo {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    pub(crate) operation: String,
    pub(crate) info: String,
    pub(crate) who: String,
    pub(crate) version: String,
    pub(crate) created: String,
    pub(crate) path: String,
}

/// What of it stands in the reason of the lock, for those who are turned away. `Who` is the owner.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Packed {
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "o", skip_serializing_if = "String::is_empty")]
    operation: String,
    #[serde(rename = "v", skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(rename = "c", skip_serializing_if = "String::is_empty")]
    created: String,
    #[serde(rename = "p", skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(rename = "n", skip_serializing_if = "String::is_empty")]
    info: String,
}

/// What stands before it.
const TERRAFORM_MARK: &str = "terraform ";

impl LockInfo {
    /// The lock as a reason that fits into `max` bytes: the least important goes first.
    pub(crate) fn pack(&self, max: usize) -> Option<String> {
        let Self { id, operation, info, version, created, path, .. } = self.clone();
        let mut packed = Packed { id, operation, version, created, path, info };
        let drop_one: [fn(&mut Packed); 6] = [
            |_| {},
            |packed| packed.info.clear(),
            |packed| packed.path.clear(),
            |packed| packed.version.clear(),
            |packed| packed.operation.clear(),
            |packed| packed.created.clear(),
        ];
        drop_one.into_iter().find_map(|drop| {
            drop(&mut packed);
            let text = format!("{TERRAFORM_MARK}{}", serde_json::to_string(&packed).ok()?);
            (text.len() <= max).then_some(text)
        })
    }

    /// The lock from what others may see of it; one that is not Terraform's has no more than an
    /// owner and a reason.
    pub(crate) fn unpack(owner: &str, reason: Option<&str>) -> Self {
        let reason = reason.unwrap_or_default();
        let packed =
            reason.strip_prefix(TERRAFORM_MARK).and_then(|text| serde_json::from_str(text).ok());
        let who = owner.to_owned();
        match packed {
            Some(Packed { id, operation, version, created, path, info }) => {
                Self { id, operation, info, who, version, created, path }
            }
            None => Self { who, info: reason.to_owned(), ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_reads_back_and_the_least_important_goes_first() {
        let lock = LockInfo {
            id: "9db590f1-b6fe-c5f2-2678-8804f089deba".into(),
            operation: "OperationTypeApply".into(),
            info: "x".into(),
            who: "anna@host".into(),
            version: "1.9.5".into(),
            created: "2026-01-02T03:04:05.678901234Z".into(),
            path: String::new(),
        };
        let back = LockInfo::unpack("anna@host", lock.pack(256).as_deref());
        assert_eq!(format!("{back:?}"), format!("{lock:?}"));
        let long = LockInfo { info: "y".repeat(300), ..lock.clone() };
        let back = LockInfo::unpack("anna@host", long.pack(256).as_deref());
        assert_eq!((back.id, back.operation, back.info), (lock.id, lock.operation, String::new()));
        assert!(LockInfo { id: "z".repeat(300), ..LockInfo::default() }.pack(256).is_none());
        assert_eq!(LockInfo::unpack("o", Some("deploy")).info, "deploy");
    }
}
