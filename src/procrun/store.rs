//! Store of sandboxes or containers by id, with their unique names.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::CriError;

/// Objects of one kind, found by id or by unique prefix of the id.
#[derive(Debug)]
pub(super) struct Store<T> {
    inner: Mutex<ObjectStoreInner<T>>,
}

#[derive(Debug)]
struct ObjectStoreInner<T> {
    by_id: BTreeMap<String, Arc<T>>,
    /// Ids of the objects that hold a name.
    names: HashMap<String, String>,
}

/// An object with an id and a name.
pub(super) trait Keyed {
    /// Returns the id: 64 hexadecimal digits.
    fn id(&self) -> &str;
    /// Returns the name, which is unique in the store.
    fn name(&self) -> &str;
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(ObjectStoreInner { by_id: BTreeMap::new(), names: HashMap::new() }) }
    }
}

impl<T: Keyed> Store<T> {
    /// Fails if a name is taken.
    pub(super) fn check_free(&self, name: &str) -> Result<(), CriError> {
        self.lock().check_free(name)
    }

    /// Adds an object. Fails if its name is taken.
    pub(super) fn add(&self, item: T) -> Result<Arc<T>, CriError> {
        let mut inner = self.lock();
        let (id, name) = (item.id().to_owned(), item.name().to_owned());
        inner.check_free(&name)?;
        let item = Arc::new(item);
        inner.names.insert(name, id.clone());
        inner.by_id.insert(id, item.clone());
        Ok(item)
    }

    /// Returns the object with this id or unique prefix of an id.
    pub(super) fn get(&self, id: &str) -> Result<Arc<T>, CriError> {
        if id.is_empty() {
            return Err(CriError::unknown("prefix can't be empty"));
        }
        let inner = self.lock();
        let from = (Bound::Included(id), Bound::Unbounded);
        let mut found = inner.by_id.range::<str, _>(from).take_while(|(full, _)| full.starts_with(id));
        match (found.next(), found.next()) {
            (Some((_, item)), None) => Ok(item.clone()),
            // All ids have the same length, so a complete id is never a prefix of another.
            (Some(_), Some(_)) => {
                Err(CriError::unknown(format!("multiple IDs found with provided prefix: {id}")))
            }
            (None, _) => Err(CriError::not_found()),
        }
    }

    /// Returns the objects for which `is_wanted` is true, in the order of their ids.
    pub(super) fn select(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        self.lock().by_id.values().filter(|item| is_wanted(item)).cloned().collect()
    }

    /// Removes an object and releases its name. Returns whether the object was there.
    pub(super) fn remove(&self, item: &T) -> bool {
        let mut inner = self.lock();
        inner.names.remove(item.name());
        inner.by_id.remove(item.id()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, ObjectStoreInner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> ObjectStoreInner<T> {
    fn check_free(&self, name: &str) -> Result<(), CriError> {
        match self.names.get(name) {
            None => Ok(()),
            Some(holder) => Err(CriError::unknown(format!("name {name:?} is reserved for {holder:?}"))),
        }
    }
}
