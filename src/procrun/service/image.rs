//! The ImageService.

use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};

use super::Service;
use super::listing::{Streamed, batched_stream};
use crate::cri::v1::image_service_server::ImageService;
use crate::cri::v1::{self, ImageFilter, ImageSpec};
use crate::procrun::proc_stats;

type GrpcResult<T> = Result<Response<T>, Status>;

impl Service {
    fn filtered_images(&self, filter: Option<ImageFilter>) -> Vec<v1::Image> {
        let filter = image_name(filter.and_then(|filter| filter.image));
        self.engine.images.list(&filter).iter().map(|image| image.to_cri()).collect()
    }
}

fn image_name(image: Option<ImageSpec>) -> String {
    image.unwrap_or_default().image
}

#[tonic::async_trait]
impl ImageService for Service {
    type StreamImagesStream = Streamed<v1::StreamImagesResponse>;

    async fn list_images(
        &self,
        request: Request<v1::ListImagesRequest>,
    ) -> GrpcResult<v1::ListImagesResponse> {
        let images = self.filtered_images(request.into_inner().filter);
        Ok(Response::new(v1::ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<v1::StreamImagesRequest>,
    ) -> GrpcResult<Self::StreamImagesStream> {
        let images = self.filtered_images(request.into_inner().filter);
        Ok(batched_stream(images, |images| v1::StreamImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> GrpcResult<v1::ImageStatusResponse> {
        let image =
            self.engine.images.status(&image_name(request.into_inner().image)).map(|image| image.to_cri());
        Ok(Response::new(v1::ImageStatusResponse { image, info: [].into() }))
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> GrpcResult<v1::PullImageResponse> {
        let image = self.engine.images.pull(&image_name(request.into_inner().image))?;
        Ok(Response::new(v1::PullImageResponse { image_ref: image.id.clone() }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> GrpcResult<v1::RemoveImageResponse> {
        self.engine.images.remove(&image_name(request.into_inner().image));
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<v1::ImageFsInfoRequest>) -> GrpcResult<v1::ImageFsInfoResponse> {
        let dir = self.engine.root.containers();
        let container_fs = spawn_blocking(move || proc_stats::directory_usage(&dir)).await;
        let container_fs = container_fs.map_err(|join_error| Status::internal(join_error.to_string()))?;
        // Images have no content. They share the file system of the containers' directories.
        let image_fs = v1::FilesystemUsage {
            used_bytes: Some(v1::UInt64Value { value: 0 }),
            inodes_used: Some(v1::UInt64Value { value: 0 }),
            ..container_fs.clone()
        };
        Ok(Response::new(v1::ImageFsInfoResponse {
            image_filesystems: vec![image_fs],
            container_filesystems: vec![container_fs],
        }))
    }
}
