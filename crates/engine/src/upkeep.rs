//! Changes that the server makes for no client: compaction of maps, and the end of garbage blocks.

use chiton_model::{Event, Op};

use crate::engine::Engine;
use crate::moment::Moment;
use crate::step::Stop;

impl Engine {
    /// An operation of the server itself (compaction). False if it has to wait, for which it is not worth it.
    pub fn remap(&mut self, op: &Op, m: &Moment) -> Result<bool, Vec<chiton_namespace::Need>> {
        match self.operate_as_server(op, m) {
            Ok(_) => Ok(true),
            Err(Stop::Missing(needs)) => Err(needs),
            Err(_) => Ok(false),
        }
    }

    /// These garbage blocks are deleted from the object store.
    pub fn swept(&mut self, blocks: Vec<chiton_types::BlockId>) {
        self.output.commit_own(&Event::Swept { blocks }, &mut self.shards);
    }
}
