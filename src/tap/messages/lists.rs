//! Lists, and streams of list items or events.

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, message, skip_field};
use prost::{DecodeError, Message};

use super::MessageContext;
use crate::cri::{ContainerObservation, SandboxObservation, v1};
use crate::tap::observation::Observation;

/// Request of any list. The filter, a message, is the first field of all such requests. It is empty
/// if it selects everything, as in the kubelet's requests when it relists containers.
#[derive(Message)]
struct ListMessageKind {
    #[prost(bytes = "vec", tag = "1")]
    filter: Vec<u8>,
}

type ListMessage = Result<(), DecodeError>;

pub(in crate::tap) fn request(read: &mut MessageContext, message: &[u8]) -> ListMessage {
    read.is_filtered = !ListMessageKind::decode(message)?.filter.is_empty();
    Ok(())
}

pub(in crate::tap) fn sandboxes(read: &mut MessageContext, message: &[u8]) -> ListMessage {
    let sandboxes: Vec<SandboxObservation> = items::<v1::PodSandbox, _>(message)?;
    if read.is_filtered {
        read.facts.extend(sandboxes.into_iter().map(Observation::Sandbox));
    } else {
        read.facts.push(Observation::SandboxList(sandboxes));
    }
    Ok(())
}

pub(in crate::tap) fn containers(read: &mut MessageContext, message: &[u8]) -> ListMessage {
    let containers: Vec<ContainerObservation> = items::<v1::Container, _>(message)?;
    if read.is_filtered {
        read.facts.extend(containers.into_iter().map(Observation::Container));
    } else {
        read.facts.push(Observation::ContainerList(containers));
    }
    Ok(())
}

/// Decodes a part of a list of sandboxes, which does not show that others are absent.
pub(in crate::tap) fn some_sandboxes(read: &mut MessageContext, message: &[u8]) -> ListMessage {
    read.is_filtered = true;
    sandboxes(read, message)
}

/// Decodes a part of a list of containers, which does not show that others are absent.
pub(in crate::tap) fn some_containers(read: &mut MessageContext, message: &[u8]) -> ListMessage {
    read.is_filtered = true;
    containers(read, message)
}

/// Decodes an event of a container, with the status of its pod and of all containers in the pod.
pub(in crate::tap) fn event(read: &mut MessageContext, message: &[u8]) -> ListMessage {
    read.facts.extend(Observation::of_event(v1::ContainerEventResponse::decode(message)?));
    Ok(())
}

/// Decodes the items of a list, which are its first field, one by one: observations are smaller
/// than items, and a list may have many.
fn items<Item, Converted>(mut message: &[u8]) -> Result<Vec<Converted>, DecodeError>
where
    Item: Message + Default + Into<Converted>,
{
    let (mut facts, context) = (Vec::new(), DecodeContext::default());
    while message.has_remaining() {
        let (tag, wire_type) = decode_key(&mut message)?;
        if tag == 1 && wire_type == WireType::LengthDelimited {
            let mut item = Item::default();
            message::merge(wire_type, &mut item, &mut message, context.clone())?;
            facts.push(item.into());
        } else {
            skip_field(wire_type, tag, &mut message, context.clone())?;
        }
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::tap::Call;

    fn read(filter: Option<v1::ContainerFilter>) -> Vec<Observation> {
        let container = |id: &str| v1::Container { id: id.into(), ..Default::default() };
        let response = v1::ListContainersResponse { containers: ["a", "b"].map(container).into() };
        let mut read = MessageContext::new(Call::sample(1, "/a/B", SystemTime::UNIX_EPOCH, Duration::ZERO));
        request(&mut read, &v1::ListContainersRequest { filter }.encode_to_vec()).unwrap();
        containers(&mut read, &response.encode_to_vec()).unwrap();
        read.facts
    }

    #[test]
    fn only_an_unfiltered_list_proves_that_an_object_is_absent() {
        for whole in [None, Some(v1::ContainerFilter::default())] {
            assert!(matches!(&read(whole)[..], [Observation::ContainerList(all)] if all.len() == 2));
        }
        let running =
            v1::ContainerFilter { state: Some(v1::ContainerStateValue::default()), ..Default::default() };
        for some in [running, v1::ContainerFilter { id: "a".into(), ..Default::default() }] {
            assert!(
                matches!(&read(Some(some))[..], [Observation::Container(a), Observation::Container(_)] if a.id == "a")
            );
        }
    }
}
