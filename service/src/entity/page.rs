//! Lists in pages: where a page begins, and how the next one is found.

use omgservers_protocol::call::{Page, Paging};

use crate::App;
use crate::db::Shard;
use crate::error::{Error, Result};

const SIZE: u32 = 50;
const SIZE_MAX: u32 = 500;
/// Characters of the longest name that a list is ordered by.
const NAME_MAX: usize = 64;
/// Shards that one call looks into: a page may be short for it.
const SHARDS_MAX: usize = 64;

/// A page of a list that is ordered by a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    size: usize,
    /// Where the page before ended. `None`: at the beginning.
    after: Option<i64>,
}

fn size(paging: &Paging) -> Result<usize> {
    let size = paging.page_size.unwrap_or(SIZE);
    if (1..=SIZE_MAX).contains(&size) {
        Ok(size as usize)
    } else {
        Err(Error::Invalid(format!("page_size must be 1 to {SIZE_MAX}")))
    }
}

fn no_token() -> Error {
    Error::Invalid("page_token is not one that a page said".into())
}

impl Window {
    pub fn new(paging: &Paging) -> Result<Self> {
        let after = paging
            .page_token
            .as_ref()
            .map(|token| token.parse().map_err(|_| no_token()));
        Ok(Self {
            size: size(paging)?,
            after: after.transpose()?,
        })
    }

    /// For an ascending list: greater than this.
    pub fn after(self) -> i64 {
        self.after.unwrap_or(i64::MIN)
    }

    /// For a descending list: less than this.
    pub fn before(self) -> i64 {
        self.after.unwrap_or(i64::MAX)
    }

    /// How many rows to fetch: one more than is shown, which tells whether there is more.
    pub fn limit(self) -> i64 {
        i64::try_from(self.size).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// The page of rows that were fetched by `limit`.
    pub fn page<R, T>(self, mut rows: Vec<R>, key: impl Fn(&R) -> i64, item: impl FnMut(R) -> T) -> Page<T> {
        let more = rows.len() > self.size;
        rows.truncate(self.size);
        let next_page_token = rows.last().filter(|_| more).map(|row| key(row).to_string());
        Page {
            items: rows.into_iter().map(item).collect(),
            next_page_token,
        }
    }
}

/// A page of a list that is ordered by name.
pub fn by_name(paging: &Paging) -> Result<(String, usize)> {
    let after = paging.page_token.clone().unwrap_or_default();
    // No name is like that; and Postgres knows no zero bytes.
    if after.chars().count() > NAME_MAX || after.contains('\0') {
        return Err(no_token());
    }
    Ok((after, size(paging)?))
}

/// A page of what is spread over the shards, one shard after the other:
/// `while let Some(part) = walk.part() { … walk.add(app, rows) }`, then `walk.page()`.
pub struct Walk<T> {
    size: usize,
    shard: Option<Shard>,
    after: i64,
    looked: usize,
    is_full: bool,
    items: Vec<T>,
}

/// What is wanted of one shard: up to `limit` rows whose key is greater than `after`, in the order of their keys.
pub struct Part {
    pub shard: Shard,
    pub after: i64,
    pub limit: i64,
}

impl<T> Walk<T> {
    pub fn new(app: &App, paging: &Paging) -> Result<Self> {
        let (shard, after) = match &paging.page_token {
            None => (app.db.shard(0), i64::MIN),
            Some(token) => {
                let (index, after) = token.split_once('.').ok_or_else(no_token)?;
                let shard = index.parse().ok().and_then(|index| app.db.shard(index));
                (
                    Some(shard.ok_or_else(no_token)?),
                    after.parse().map_err(|_| no_token())?,
                )
            }
        };
        Ok(Self {
            size: size(paging)?,
            shard,
            after,
            looked: 0,
            is_full: false,
            items: Vec::new(),
        })
    }

    fn wanted(&self) -> usize {
        self.size - self.items.len()
    }

    /// The next shard to look into, if the page is not done.
    pub fn part(&self) -> Option<Part> {
        let shard = self.shard.filter(|_| !self.is_full && self.looked < SHARDS_MAX)?;
        Some(Part {
            shard,
            after: self.after,
            limit: i64::try_from(self.wanted()).unwrap_or(i64::MAX),
        })
    }

    /// The rows of that shard, each with its key.
    pub fn add(&mut self, app: &App, rows: Vec<(i64, T)>) {
        self.looked += 1;
        self.is_full = rows.len() >= self.wanted();
        if let Some((key, _)) = rows.last() {
            self.after = *key;
        }
        self.items.extend(rows.into_iter().map(|(_, item)| item));
        if !self.is_full {
            self.shard = self.shard.and_then(|shard| app.db.shard(shard.index() + 1));
            self.after = i64::MIN;
        }
    }

    pub fn page(self) -> Page<T> {
        Page {
            items: self.items,
            next_page_token: self.shard.map(|shard| format!("{}.{}", shard.index(), self.after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(size: Option<u32>, token: Option<&str>) -> Paging {
        Paging {
            page_size: size,
            page_token: token.map(str::to_owned),
        }
    }

    #[test]
    fn a_page_says_where_the_next_begins_unless_it_is_the_last() {
        let window = Window::new(&paging(Some(2), Some("7"))).unwrap();
        assert_eq!((window.after(), window.before(), window.limit()), (7, 7, 3));
        let page = window.page(vec![8, 9, 10], |row| *row, |row| row);
        assert_eq!((page.items, page.next_page_token.as_deref()), (vec![8, 9], Some("9")));
        assert_eq!(window.page(vec![8, 9], |row| *row, |row| row).next_page_token, None);
    }

    #[test]
    fn sizes_and_tokens_from_outside_are_checked() {
        for wrong in [paging(Some(0), None), paging(Some(501), None), paging(None, Some("x"))] {
            assert!(matches!(Window::new(&wrong), Err(Error::Invalid(_))), "{wrong:?}");
        }
        assert_eq!(Window::new(&paging(None, None)).unwrap().limit(), 51);
        assert!(matches!(by_name(&paging(None, Some("a\0"))), Err(Error::Invalid(_))));
    }
}
