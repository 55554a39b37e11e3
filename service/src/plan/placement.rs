//! Which host takes a runtime.

use omgservers_protocol::audit::Quotas;
use omgservers_protocol::id::{DeploymentId, HostId, RuntimeId, TenantId};

/// A host and what is still free on it.
#[derive(Debug, Clone)]
pub struct Host {
    pub id: HostId,
    /// Milliseconds per 100 ms.
    pub cpu: i64,
    /// Megabytes.
    pub memory: i64,
    pub containers: i64,
    /// Runtimes of the same deployment that are there already.
    pub siblings: i64,
}

/// What a runtime needs.
#[derive(Debug, Clone)]
pub struct Demand {
    pub runtime: RuntimeId,
    pub tenant: TenantId,
    pub deployment: DeploymentId,
    pub cpu: i64,
    pub memory: i64,
}

/// What a tenant has placed already.
#[derive(Debug, Clone, Default)]
pub struct Used {
    runtimes: i64,
    cpu: i64,
    memory: i64,
}

impl Used {
    pub fn add(&mut self, cpu: i64, memory: i64) {
        self.runtimes += 1;
        self.cpu += cpu;
        self.memory += memory;
    }
}

/// Why the tenant may not have one more such runtime, if so.
pub fn over_quota(quotas: &Quotas, used: &Used, demand: &Demand) -> Option<String> {
    let over = |quota: Option<u32>, wanted: i64| quota.filter(|quota| wanted > i64::from(*quota));
    if let Some(quota) = over(quotas.runtimes, used.runtimes + 1) {
        return Some(format!("the studio's quota of {quota} game servers is used up"));
    }
    if let Some(quota) = over(quotas.cpu, used.cpu + demand.cpu) {
        return Some(format!("the studio's quota of {quota} hundredths of a core is used up"));
    }
    let quota = over(quotas.memory, used.memory + demand.memory)?;
    Some(format!("the studio's quota of {quota} MB of memory is used up"))
}

/// Smaller is better, compared field by field from the top.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Losing one host should not empty a game.
    siblings: i64,
    /// The emptiest first.
    cpu_free: std::cmp::Reverse<i64>,
    /// Last, so that equal hosts are always chosen in the same order.
    host: HostId,
}

/// `None`: nothing fits.
pub fn place(hosts: &[Host], demand: &Demand) -> Option<HostId> {
    hosts
        .iter()
        .filter(|host| host.cpu >= demand.cpu && host.memory >= demand.memory && host.containers >= 1)
        .min_by_key(|host| Score {
            siblings: host.siblings,
            cpu_free: std::cmp::Reverse(host.cpu),
            host: host.id,
        })
        .map(|host| host.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(id: i64, cpu: i64, siblings: i64) -> Host {
        Host {
            id: HostId(id),
            cpu,
            memory: 1_000,
            containers: 2,
            siblings,
        }
    }

    fn check(hosts: &[Host], expected: Option<i64>) {
        let demand = Demand {
            runtime: RuntimeId(1),
            tenant: TenantId(1),
            deployment: DeploymentId(1),
            cpu: 100,
            memory: 500,
        };
        assert_eq!(place(hosts, &demand).map(HostId::get), expected);
    }

    #[test]
    fn the_emptiest_host_without_siblings_is_taken() {
        check(&[host(1, 100, 0), host(2, 300, 0), host(3, 900, 1)], Some(2));
        check(&[host(2, 300, 0), host(1, 300, 0)], Some(1));
    }

    #[test]
    fn a_quota_is_used_to_its_last_unit_and_no_further() {
        let mut used = Used::default();
        used.add(100, 500);
        let demand = Demand {
            runtime: RuntimeId(1),
            tenant: TenantId(1),
            deployment: DeploymentId(1),
            cpu: 100,
            memory: 500,
        };
        let over = |runtimes, cpu, memory| {
            let quotas = Quotas {
                runtimes,
                cpu,
                memory,
                players: Some(0),
            };
            over_quota(&quotas, &used, &demand).is_some()
        };
        assert!(!over(None, None, None) && !over(Some(2), Some(200), Some(1_000)));
        assert!(over(Some(1), None, None) && over(None, Some(199), None) && over(None, None, Some(999)));
        assert!(over(Some(0), None, None));
    }

    #[test]
    fn the_last_unit_of_a_host_is_used_and_no_more() {
        check(&[host(1, 100, 5)], Some(1));
        check(&[host(1, 99, 0)], None);
        check(
            &[Host {
                memory: 499,
                ..host(1, 200, 0)
            }],
            None,
        );
        check(
            &[Host {
                containers: 0,
                ..host(1, 200, 0)
            }],
            None,
        );
        check(&[], None);
    }
}
